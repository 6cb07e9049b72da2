"""A mutation run over the trial's state machine and the ledger: changes that no test notices are printed.

    python benchmarks/mutations.py                         # all of it, an hour of two cores
    python benchmarks/mutations.py "automl.trial*" "automl.events*"

Needs mutmut 3 (`pip install mutmut`). Works on a copy of the tree; a second call with `--folder` goes on with it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Left out: what starts processes or file systems of its own, which no change inside this process reaches.
SKIP = "not full_disk and not read_only_disk and not nor_ray and not killed and not whatever_bytes"
SETTINGS = f"""
[tool.mutmut]
source_paths = ["automl"]
only_mutate = ["automl/trial.py", "automl/events.py", "automl/ledger/*.py"]
pytest_add_cli_args_test_selection = [
    "tests/automl/test_fold.py", "tests/automl/ledger/test_ledger.py", "tests/automl/ledger/test_migrations.py",
    "tests/automl/ledger/test_disks.py", "-x", "-k", "{SKIP}",
]
also_copy = ["automl", "workers", "search_spaces", "benchmarks", "tests", "configs"]
"""


def prepare(folder: Path) -> None:
    """A copy of what is committed, with the settings of mutmut."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    with (folder / "pyproject.toml").open("a") as file:
        file.write(SETTINGS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="*", default=["automl.trial*", "automl.events*", "automl.ledger*"])
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="automl-mutants-"))
    if not (folder / "pyproject.toml").exists():
        prepare(folder)
    print(f"in {folder}", flush=True)
    program = Path(sys.executable).with_name("mutmut")
    subprocess.run([program, "run", "--max-children", "1", *given.mutants], cwd=folder, check=False)
    shown = subprocess.run([program, "results"], cwd=folder, check=True, capture_output=True, text=True).stdout
    survivors = [line.split(":")[0].strip() for line in shown.splitlines() if line.strip().endswith(": survived")]
    for name in survivors:
        subprocess.run([program, "show", name], cwd=folder, check=False)
    print(f"{len(survivors)} survivors")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
