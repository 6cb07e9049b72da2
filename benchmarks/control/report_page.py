"""The report of a large sweep: seconds, size, and when a browser shows its first picture.

    python benchmarks/control/report_page.py [--trials 5000] [--check]
    python benchmarks/control/report_page.py --quick [--check]     500 trials

For 5,000 trials it must take at most 20 s and 15 MB, and the first picture must come within 2 s.
The first picture is the progress of the best trial, which the page contains as a drawing. The
figures in which trials can be selected are drawn later.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from automl.ledger import Ledger
from automl.report.page import save
from automl.report.record import Record
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import CHECK, parser

TESTS: Final = Path(__file__).parents[2] / "tests"
LIMITS: Final = {"report_seconds": 20.0, "megabytes": 15.0, "first_picture_seconds": 2.0}
FIRST_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
DRAWN: Final = "[...document.querySelectorAll('.figure')].map(figure => +figure.dataset.drawn)"


def shown(path: Path, picture: Path | None) -> dict[str, Any]:
    """Seconds until a browser has drawn the first and the last figure; empty without a browser."""
    from browser import browser, executable

    found = executable()
    if found is None:
        return {}
    with browser(found) as running:
        page = running.new_page(viewport={"width": 1200, "height": 900})
        begun = time.perf_counter()
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_selector("#progress svg", timeout=120_000)
        painted = page.evaluate(FIRST_PAINT)
        page.wait_for_selector("body[data-drawn=all]", timeout=120_000)
        last = time.perf_counter() - begun
        painted = painted or page.evaluate(FIRST_PAINT)
        first = min(page.evaluate(DRAWN)) / 1000
        if picture:
            page.screenshot(path=str(picture), full_page=True)
    return {
        "first_picture_seconds": round(painted / 1000, 2),
        "first_figure_seconds": round(first, 2),
        "all_figures_seconds": round(last, 2),
    }


def measure(trials: int, keep: Path | None) -> dict[str, Any]:
    """Write a sweep and its report, and open the report in a browser."""
    from report_sweeps import write_sweep

    with tempfile.TemporaryDirectory() as folder:
        store = write_sweep(Path(folder), trials, goals=["minimize loss", "minimize size"])
        path = keep or Path(folder) / "report.html"
        begun = time.perf_counter()
        busy = time.process_time()
        record = Record.read(Ledger.open(store, readonly=True), "toy")
        read = time.perf_counter() - begun
        save(record, path)
        seconds = time.perf_counter() - begun
        return {
            "trials": trials,
            "read_seconds": round(read, 2),
            "report_seconds": round(seconds, 2),
            "report_cpu_seconds": round(time.process_time() - busy, 2),
            "megabytes": round(path.stat().st_size / 1e6, 2),
            **shown(path.absolute(), keep and keep.with_suffix(".png")),
        }


def claims(found: dict[str, Any]) -> list[Claim]:
    """The limits of time and size."""
    return [at_most(name, found.get(name), limit) for name, limit in LIMITS.items()]


def main() -> int:
    """Measure one report and print its figures."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=5000)
    options.add_argument("--keep", type=Path, help="file for the page, with a picture beside it")
    options.add_argument("--quick", action="store_true", help="500 trials")
    options.add_argument("--check", action="store_true", help=CHECK)
    given = options.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS / "automl" / "report")]  # helpers of the tests
    found = measure(500 if given.quick else given.trials, given.keep)
    print(json.dumps(found))
    return conclude(claims(found)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
