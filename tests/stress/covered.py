"""Line and branch coverage of what must not fail: ledger, trial, controller, configuration and protocol.

    python tests/stress/covered.py                    # run their tests (some minutes), print the table and keep it
    python tests/stress/covered.py tests/automl/config    # some of them; what was measured before is kept
    python tests/stress/covered.py --table --missing  # the table of what was measured so far, with the lines not reached

Needs `pip install coverage`. Processes that tests start are measured too; one that is killed with -9 tells nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "coverage.txt"
WANTED = 95.0
TESTS = [
    "tests/automl/ledger/test_ledger.py",
    "tests/automl/ledger/test_migrations.py",
    "tests/automl/ledger/test_troubles.py",
    "tests/automl/ledger/test_disks.py",
    "tests/automl/ledger/test_postgres.py",
    "tests/automl/core/test_events.py",
    "tests/automl/test_optimizer.py",
    "tests/automl/test_sweeps.py",
    "tests/automl/control/test_failpoints.py",
    "tests/automl/control/test_killed_controllers.py",
    "tests/automl/control/test_checkpoint_cleanup.py",
    "tests/automl/test_simulation.py",
    "tests/automl/suggesters/test_queue.py",
    "tests/automl/control/test_memory_guard.py",
    "tests/automl/control/test_pauses.py",
    "tests/automl/stopping/test_stoppers.py",
    "tests/automl/cli/test_cli_machine.py",
    "tests/automl/config",
    "tests/workers/test_run.py",
    "tests/workers/runtime/test_gangs.py",
]
GROUPS = {
    "ledger": ["automl/ledger/*.py"],
    "trial": ["automl/core/trial.py", "automl/core/events.py"],
    "controller": ["automl/control/controller.py", "automl/control/journal.py"],
    "config": ["automl/config/*.py"],
    "protocol": ["workers/protocol.py"],
}
SETTINGS = f"""
[run]
branch = True
parallel = True
patch = subprocess, _exit
concurrency = multiprocessing, thread
data_file = {ROOT}/.coverage-parts/data
source = automl, workers
relative_files = True
[report]
exclude_also =
    if TYPE_CHECKING:
    @abstractmethod
    raise AssertionError
"""


def settings() -> Path:
    """The file of coverage's settings, which the processes that tests start read too."""
    file = ROOT / ".coverage-parts" / "settings"
    file.parent.mkdir(exist_ok=True)
    file.write_text(SETTINGS)
    return file


def run(tests: list[str]) -> int:
    """Some tests, measured; the exit status."""
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--rcfile={settings()}",
        "-m",
        "pytest",
        "-q",
        "-x",
        *tests,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def table(missing: bool) -> tuple[str, float]:
    """The table and the least coverage of a group."""
    measured = coverage.Coverage(config_file=str(settings()))
    measured.combine(keep=True)
    lines, least = (
        ["| part | lines | covered | branches | covered |", "|---|---|---|---|---|"],
        100.0,
    )
    details = []
    for group, patterns in GROUPS.items():
        sums = [0, 0, 0, 0]
        for file in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
            numbers = measured._analyze(str(file.relative_to(ROOT))).numbers
            found = (
                numbers.n_statements,
                numbers.n_executed,
                numbers.n_branches,
                numbers.n_executed_branches,
            )
            sums = [a + b for a, b in zip(sums, found, strict=True)]
            gone = measured.analysis2(str(file.relative_to(ROOT)))[4]
            details.append(
                f"{file.relative_to(ROOT)}: {100 * found[1] / max(1, found[0]):.0f}% not reached: {gone or '-'}"
            )
        share = [100 * sums[1] / max(1, sums[0]), 100 * sums[3] / max(1, sums[2])]
        least = min(least, share[0])
        lines.append(f"| {group} | {sums[0]} | {share[0]:.1f}% | {sums[2]} | {share[1]:.1f}% |")
    return "\n".join([*lines, "", *details] if missing else lines), least


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", default=TESTS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--missing", action="store_true")
    given = parser.parse_args()
    if not given.table and (status := run(given.tests)):
        return status
    text, least = table(given.missing)
    print(text)
    if not given.missing:
        RESULT.write_text(text + "\n")
    return 0 if least >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
