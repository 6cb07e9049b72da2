"""How long the report of a large sweep takes, how large it is, and when a browser shows its first picture.

    python benchmarks/control/report_page.py --trials 5000

Must hold for 5,000 trials: at most 20 s and 15 MB; the first picture within 2 s. That is the progress of the best,
which the page brings as a drawing; the figures to zoom into are drawn when plotly has been read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [
    str(Path(__file__).parents[2] / part) for part in ("", "tests", "tests/automl/report")
]

from browser import browser, executable  # noqa: E402
from report_sweeps import write_sweep  # noqa: E402

from automl.ledger import Ledger  # noqa: E402
from automl.report.page import save  # noqa: E402
from automl.report.record import Record  # noqa: E402


def shown(path: Path, picture: Path | None) -> dict[str, Any]:
    """Seconds until the first and the last figure are drawn."""
    found = executable()
    if found is None:
        return {"first_picture_seconds": None}
    with browser(found) as running:
        page = running.new_page(viewport={"width": 1200, "height": 900})
        begun = time.perf_counter()
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_selector("svg.static-chart", timeout=120_000)
        painted = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        )
        page.wait_for_selector("body[data-drawn=all]", timeout=120_000)
        last = time.perf_counter() - begun
        painted = painted or page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        first = (
            min(
                page.evaluate(
                    "[...document.querySelectorAll('.figure')].map(figure => +figure.dataset.drawn)"
                )
            )
            / 1000
        )
        if picture:
            page.screenshot(path=str(picture), full_page=True)
    return {
        "first_picture_seconds": round(
            painted / 1000, 2
        ),  # the answer, and the progress of the best
        "first_figure_seconds": round(first, 2),
        "all_figures_seconds": round(last, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument(
        "--keep", type=Path, help="where to keep the page, and a picture of it beside it"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = write_sweep(Path(folder), options.trials, goals=["minimize loss", "minimize size"])
        path = options.keep or Path(folder) / "report.html"
        begun, busy = time.perf_counter(), time.process_time()
        ledger = Ledger.open(store, readonly=True)
        record = Record.read(ledger, "toy")
        read = time.perf_counter() - begun
        save(record, path)
        seconds = time.perf_counter() - begun
        found = {
            "trials": options.trials,
            "read_seconds": round(read, 2),
            "report_seconds": round(seconds, 2),
            "report_cpu_seconds": round(
                time.process_time() - busy, 2
            ),  # what it takes on an idle machine
            "megabytes": round(path.stat().st_size / 1e6, 2),
            **shown(path.absolute(), options.keep and options.keep.with_suffix(".png")),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
