"""Make pictures of the studio and the report in every state: python scripts/studio_states.py

States: no sweep yet, no trial yet, all trials failed, a dead controller, one goal, three goals,
5,000 trials; each page in both themes and on a phone. A few of the pictures are in docs/images. It
needs a browser (python tests/browser.py) and pillow.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / one) for one in ("", "automl/report"))]

from browser import browser, install  # noqa: E402
from PIL import Image  # noqa: E402
from report_sweeps import write_sweep  # noqa: E402

from automl.core.events import Begun, Closed, Ended, Proposed  # noqa: E402
from automl.core.trial import TrialState  # noqa: E402
from automl.ledger import Ledger  # noqa: E402
from automl.report.page import save  # noqa: E402
from automl.report.record import Record  # noqa: E402
from automl.studio.server import StudioServer  # noqa: E402
from workers.protocol import Ending, Outcome  # noqa: E402

COLOURS: Final = 160  # of a picture: text and lines need no more
GOALS: Final = ("minimize loss", "minimize size", "minimize seconds_per_update")
SWEEP: Final = ("",)
VIEWS: Final = {
    "light": {"viewport": {"width": 1360, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1360, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 800}, "color_scheme": "light"},
}


def begin(store: Path, name: str, failures: int = 0, state: str = "running") -> Ledger:
    """A sweep whose trials so far have all failed; its controller lives until the ledger closes."""
    ledger = Ledger.open(store)
    recorder = ledger.hold(name)
    for number in range(failures):
        recorder.state.apply(Proposed(number, {"lr": 0.1 / (number + 1)}, "bayes"))
        recorder.state.apply(Begun(number, 1, 10.0 * number))
        failed = Outcome(
            number, 1, Ending.FAILED, failure="crashed", message="RuntimeError: no GPU was found"
        )
        end = 10.0 * number + 4
        recorder.state.apply(Ended(failed, TrialState.FAILED, "crashed", "no GPU was found", end))
    if state != "running":
        recorder.state.apply(Closed(state))
    recorder.commit(10.0 * failures)
    return ledger


def states(folder: Path, trials: int, open_: ExitStack) -> dict[str, Path]:
    """A store for each state; controllers live until the stack closes."""
    stores = {
        name: folder / name
        for name in ("nothing", "begun", "failed", "dead", "one-goal", "three-goals", "many")
    }
    Ledger.open(stores["nothing"], create=True).close()
    for name in ("begun", "failed"):
        write_sweep(stores[name], 0)
    open_.callback(begin(stores["begun"], "toy").close)
    begin(stores["failed"], "toy", 6, "finished").close()
    write_sweep(stores["dead"], 14)
    begin(stores["dead"], "toy").close()
    write_sweep(stores["one-goal"], 60)
    write_sweep(stores["one-goal"], 40)
    write_sweep(stores["three-goals"], 60, goals=list(GOALS))
    write_sweep(stores["many"], trials)
    return stores


@contextmanager
def served(store: Path) -> Iterator[StudioServer]:
    """A studio of a store."""
    ledger = Ledger.open(store, readonly=True)
    try:
        with StudioServer(ledger, store=str(store)).in_thread() as server:
            yield server
    finally:
        ledger.close()


def pages(state: str) -> dict[str, str]:
    """Paths of the pages to show, and the part of the file's name that says which."""
    if state == "nothing":
        return {"/": "sweeps"}
    found = {f"/sweeps/toy{path}": path.strip("/") or "sweep" for path in SWEEP}
    if state == "one-goal":
        found |= {
            "/": "sweeps",
            "/sweeps/toy/trials/1": "trial",
        }
    return found


def photograph(running: Any, server: StudioServer, state: str, out: Path) -> None:
    """Every page of a state in every view."""
    for view, options in VIEWS.items():
        page = running.new_page(**options)
        for path, name in pages(state).items():
            page.goto(server.address(path))
            page.wait_for_selector("body[data-ready]")
            page.wait_for_selector("#connection.live")
            page.wait_for_timeout(400)
            keep(page, out / f"{state}-{name}-{view}.png")
        page.close()


def report(running: Any, store: Path, state: str, out: Path) -> None:
    """The report in every view."""
    ledger = Ledger.open(store, readonly=True)
    file = store / "report.html"
    save(Record.read(ledger, "toy"), file)
    ledger.close()
    for view, options in VIEWS.items():
        page = running.new_page(**options)
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]", timeout=300_000)
        keep(page, out / f"{state}-report-{view}.png")
        page.close()


def keep(page: Any, path: Path) -> None:
    """A picture of what a window or an element shows, in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", flush=True)


def main() -> None:
    """Take every picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    parser.add_argument("--trials", type=int, default=5000, help="of the large sweep")
    parser.add_argument("--only", nargs="*", help="names of states")
    given = parser.parse_args()
    path = install()
    if path is None:
        sys.exit("no browser can be had")
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as open_,
        browser(path) as running,
    ):
        for state, store in states(Path(folder), given.trials, open_).items():
            if given.only and state not in given.only:
                continue
            with served(store) as server:
                photograph(running, server, state, given.out)
            if state != "nothing":
                report(running, store, state, given.out)


if __name__ == "__main__":
    main()
