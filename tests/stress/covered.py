"""Line and branch coverage of ledger, trial, controller, configuration and protocol.

    python tests/stress/covered.py                        run their tests (minutes), store the table
    python tests/stress/covered.py tests/automl/config    some of them, added to earlier runs
    python tests/stress/covered.py --table --missing      the table, with the lines not reached

Needs `pip install coverage`. Processes that tests start are measured too, except those that are
killed with -9. The exit status is 1 if less than 95% of the lines of a part are covered.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.common.options import parser
from benchmarks.common.store import RESULTS

ROOT = Path(__file__).parents[2]
RESULT = RESULTS / "coverage.txt"
WANTED = 95.0
TESTS = [
    "tests/automl/ledger",
    "tests/automl/core",
    "tests/automl/control",
    "tests/automl/config",
    "tests/automl/stopping/test_stoppers.py",
    "tests/automl/suggesters/test_queue.py",
    "tests/automl/cli/test_cli_machine.py",
    "tests/automl/test_optimizer.py",
    "tests/automl/test_sweeps.py",
    "tests/automl/test_simulation.py",
    "tests/workers/test_run.py",
    "tests/workers/runtime/test_gangs.py",
]
GROUPS = {
    "ledger": ["automl/ledger/*.py"],
    "trial": ["automl/core/trial*.py", "automl/core/events.py"],
    "controller": ["automl/control/*.py"],
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
    """Write the settings, which the processes of the tests also read; the path of the file."""
    file = ROOT / ".coverage-parts" / "settings"
    file.parent.mkdir(exist_ok=True)
    file.write_text(SETTINGS)
    return file


def run(tests: list[str]) -> int:
    """Run some tests with coverage; the exit status."""
    measured = ["-m", "coverage", "run", f"--rcfile={settings()}", "-m", "pytest", "-q", "-x"]
    return subprocess.run([sys.executable, *measured, *tests], cwd=ROOT, check=False).returncode


def table(missing: bool) -> tuple[str, float]:
    """The table, and the least line coverage of a group."""
    import coverage

    measured = coverage.Coverage(config_file=str(settings()))
    measured.combine(keep=True)
    lines = ["| part | lines | covered | branches | covered |", "|---|---|---|---|---|"]
    least = 100.0
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
            share = f"{100 * found[1] / max(1, found[0]):.0f}%"
            details.append(f"{file.relative_to(ROOT)}: {share}, not reached: {gone or '-'}")
        reached, branches = (100 * sums[i + 1] / max(1, sums[i]) for i in (0, 2))
        least = min(least, reached)
        lines.append(f"| {group} | {sums[0]} | {reached:.1f}% | {sums[2]} | {branches:.1f}% |")
    return "\n".join([*lines, "", *details] if missing else lines), least


def main() -> int:
    """Run the tests, and print and store the table."""
    options = parser(__doc__)
    options.add_argument("tests", nargs="*", default=TESTS)
    options.add_argument("--table", action="store_true", help="run nothing")
    options.add_argument("--missing", action="store_true", help="list the lines not reached")
    given = options.parse_args()
    if not given.table and (status := run(given.tests)):
        return status
    text, least = table(given.missing)
    print(text)
    if not given.missing:
        RESULT.write_text(text + "\n")
    return 0 if least >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
