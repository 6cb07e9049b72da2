"""What it costs to install and to import automl, beside Optuna and Ax.

    python benchmarks/install.py [--repeats N]       measure and store the rows
    python benchmarks/install.py --quick [--check]   fewer imports
    python benchmarks/install.py --table [--check]   the stored rows
    python benchmarks/install.py --fresh             also install each anew: 15 GB

- install: packages and megabytes of a distribution and of all that it needs, as they lie in this
  environment; torch and the libraries of GPUs that come with it are counted apart.
- import: seconds and megabytes of resident memory of a Python that does the import, less those of
  one that imports nothing. Contestants run in turn; each number is the median.
- fresh: seconds of `pip install`, and megabytes of the environment. They depend on the network.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import benchmark_parser

ROOT: Final = Path(__file__).resolve().parents[1]
ROWS: Final = store.RESULTS / "install.jsonl"
OURS: Final = "automl-sweep"
CONTESTANTS: Final = {
    OURS: "import automl",
    "optuna": "import optuna",
    "ax-platform": "from ax import Client",
}
USED: Final = {f"{OURS}, sweep": "import automl; automl.sweep"}  # what the first call needs
OF_TORCH: Final = re.compile(r"torch$|triton|nvidia-|cuda-")
CODE: Final = """
import sys, time
began = time.perf_counter()
{code}
seconds = time.perf_counter() - began
resident = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")]
print(seconds, int(resident[0]) / 1000)
"""


def needed(distribution: str) -> dict[str, float]:
    """The megabytes of a distribution and of all that it needs, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, float] = {}
    first, done = Requirement(distribution), set()
    waiting = [first]
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) in done:
                continue
            done.add((one.name, extra))
            if one.name == OURS:
                found[OURS] = sum(_sizes(ROOT / name for name in ("automl", "workers")))
                found[OURS] += sum(_sizes([ROOT / "search_spaces"]))
                waiting += map(Requirement, own[extra])
                continue
            installed = metadata.distribution(one.name)
            files = (Path(str(installed.locate_file(file))) for file in installed.files or ())
            found[canonical(one.name)] = sum(_sizes(file for file in files if file.is_file()))
            for line in installed.requires or ():
                inner = Requirement(line)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    waiting.append(inner)
    return found


def canonical(name: str) -> str:
    """A distribution's name in its standard spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _sizes(paths: Iterable[Path]) -> Iterable[float]:
    """Megabytes of files, and of the Python and data files below folders."""
    for path in paths:
        if path.is_file():
            yield path.stat().st_size / 1e6
        else:
            yield sum(p.stat().st_size for p in path.rglob("*") if p.suffix != ".pyc") / 1e6


def install_row(distribution: str) -> store.Row:
    sizes = needed(distribution)
    of_torch = sum(size for name, size in sizes.items() if OF_TORCH.match(name))
    return {
        "part": "install",
        "who": distribution,
        "packages": len(sizes),
        "megabytes": round(sum(sizes.values()) - of_torch, 1),
        "torch_megabytes": round(of_torch, 1),
    }


def import_rows(repeats: int) -> list[store.Row]:
    codes = {"nothing": "pass", **CONTESTANTS, **USED}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
    for round_ in range(repeats + 1):
        for name, code in codes.items():
            words = [sys.executable, "-c", CODE.format(code=code)]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
            seconds, resident = map(float, done.stdout.split())
            if round_:  # the first one fills the caches
                seen[name].append((seconds, resident))
    medians = {
        name: [statistics.median(v) for v in zip(*s, strict=True)] for name, s in seen.items()
    }
    idle = medians.pop("nothing")[1]
    return [
        {
            "part": "import",
            "who": name,
            "seconds": round(seconds, 3),
            "megabytes": round(resident - idle, 1),
            "repeats": repeats,
        }
        for name, (seconds, resident) in medians.items()
    ]


def fresh_row(distribution: str) -> store.Row:
    """Install into an empty environment."""
    target = distribution.replace(OURS, str(ROOT)) if OURS in distribution else distribution
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder, "bin", "python")), "-m", "pip", "install", "--quiet"]
        began = time.monotonic()
        subprocess.run([*pip, target], check=True, capture_output=True)
        seconds = time.monotonic() - began
        megabytes = sum(_sizes([Path(folder)]))
    return {
        "part": "fresh",
        "who": distribution,
        "seconds": round(seconds, 1),
        "megabytes": round(megabytes, 1),
    }


def show(rows: Sequence[store.Row]) -> None:
    print("part     who                    seconds  megabytes  of torch  packages")
    for row in rows:
        cells = [row.get(key, "-") for key in ("seconds", "megabytes", "torch_megabytes")]
        print(f"{row['part']:8} {row['who']:22} ", end="")
        print("".join(f"{cell!s:>9} " for cell in cells), row.get("packages", "-"), sep="")


def claims(rows: Sequence[store.Row]) -> list[Claim]:
    known: dict[tuple[str, str], dict[str, Any]] = {(row["part"], row["who"]): row for row in rows}

    def of(part: str, who: str, key: str) -> float | None:
        return known.get((part, who), {}).get(key)

    return [
        at_most(
            "seconds of `import automl`, beside Optuna's",
            of("import", OURS, "seconds"),
            of("import", "optuna", "seconds"),
        ),
    ]


def main() -> int:
    parser = benchmark_parser(__doc__, "three imports of each")
    parser.add_argument("--repeats", type=int, default=11, help="imports of each")
    parser.add_argument("--fresh", action="store_true", help="install each anew")
    given = parser.parse_args()
    if given.table:
        rows = list(store.load(ROWS, "part", "who").values())
    else:
        rows = [install_row(name) for name in CONTESTANTS]
        rows += import_rows(3 if given.quick else given.repeats)
        rows += [fresh_row(name) for name in CONTESTANTS] if given.fresh else []
        for row in [] if given.quick else rows:
            store.append(ROWS, row)
    show(rows)
    verdict = conclude(claims(rows))
    return verdict if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
