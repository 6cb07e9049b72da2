"""The studio with 100 sweeps, one of them with 10,000 trials and 100,000 reports.

    python benchmarks/control/studio.py [--trials 10000] [--check]
    python benchmarks/control/studio.py --quick [--check]     1,000 trials, 20 sweeps

Measured in Chromium: seconds until the first content of a page, seconds from a commit until it can
be seen (the slowest of ten), frames a second while the table of trials scrolls. Of the server: its
peak memory. Of a controller: how much slower its commits are while twenty viewers follow its sweep
(commits with and without viewers take turns; the medians are compared).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from automl.core import Budget, SweepSpec, TrialState, parse_goals
from automl.core.events import Begun, Closed, Ended, Proposed
from automl.ledger import Ledger
from automl.ledger.recorder import Recorder
from benchmarks.common.bounds import Claim, at_least, at_most, conclude
from benchmarks.common.options import CHECK, parser
from search_spaces import Choice, Float, Int, Space
from workers.protocol import Ending, Outcome, Report

TESTS: Final = Path(__file__).parents[2] / "tests"
SPACE: Final = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Int("batch_size", 8, 512, log=True, default=64),
    Choice("optimizer", ["sgd", "adam"], default="adam"),
    Float("dropout", 0.0, 0.5, default=0.1),
)
BIG: Final = "big"
VIEWERS: Final = 20
CHANGES: Final = 10
COMMITS: Final = 60  # of a block
BLOCKS: Final = 4
PAUSE_SECONDS: Final = 0.02  # between two commits
SETTLE_SECONDS: Final = 3.0  # until the viewers have read the page
LIMITS: Final = {
    "first_content_seconds": 1.0,
    "change_seconds": 1.0,
    "server_megabytes": 400.0,
    "slower_percent": 5.0,
}
MIN_FRAMES: Final = 50.0
SCROLL: Final = """async () => {
    const rows = document.querySelector(".rows");
    let frames = 0;
    const begun = performance.now();
    while (performance.now() - begun < 3000) {
        rows.scrollTop = (rows.scrollTop + 240) % (rows.scrollHeight - rows.clientHeight);
        await new Promise(requestAnimationFrame);
        frames++;
    }
    return frames / ((performance.now() - begun) / 1000);
}"""


def run_trial(recorder: Recorder, number: int, rng: np.random.Generator, reports: int) -> None:
    """One trial, which completes; the caller commits it."""
    params = SPACE.sample(rng, 1)[0]
    at = 2.0 * number
    recorder.apply(Proposed(number, params, "bayes" if number else "default", at))
    recorder.apply(Begun(number, 1, at))
    loss = abs(float(np.log10(float(params["lr"]))) + 2.5) + float(rng.random())  # type: ignore[arg-type]
    for step in range(reports):
        metrics = {"loss": loss + 1.0 / (step + 1), "tokens_per_second": 1e4 * float(rng.random())}
        recorder.apply(Report(number, 1, step, step + 1, metrics, float(step)))
    outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": loss}, seconds=3.0)
    recorder.apply(Ended(outcome, TrialState.COMPLETED, at=at + 3.0))


def write(store: Path, name: str, trials: int, reports: int = 10) -> None:
    """A finished sweep."""
    budget = Budget(trials=trials)
    spec = SweepSpec(name, SPACE, parse_goals("minimize loss"), budget=budget)
    ledger = Ledger.open(store, create=True)
    recorder = ledger.acquire(ledger.create_sweep(spec, {}))
    rng = np.random.default_rng(len(name))
    for number in range(trials):
        run_trial(recorder, number, rng, reports)
        if number % 100 == 99:
            recorder.commit(2.0 * number)
    recorder.apply(Closed("finished"))
    recorder.commit(2.0 * trials)
    ledger.close()


@contextlib.contextmanager
def studio(store: Path) -> Iterator[tuple[str, str, int]]:
    """Origin, token and process of a studio."""
    command = [sys.executable, "-m", "automl", "studio", "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        origin, token = process.stdout.readline().decode().strip().split("/#token=")
        yield origin, token, process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def first_contents(browser: Any, origin: str, token: str) -> float:
    """Seconds until the slowest of three pages shows its content."""
    pages = {
        "/": f"a:has-text('{BIG}')",
        f"/sweeps/{BIG}": ".headline",
        f"/sweeps/{BIG}/trials": ".rows td a",
    }
    taken = []
    for path, shown in pages.items():
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        begun = time.perf_counter()
        page.goto(f"{origin}{path}#token={token}")
        page.wait_for_selector(shown)
        taken.append(time.perf_counter() - begun)
        page.close()
    return max(taken)


def frames(browser: Any, origin: str, token: str) -> float:
    """Frames a second while the table of all trials scrolls."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{origin}/sweeps/{BIG}/trials#token={token}")
    page.wait_for_selector(".rows td a")
    found = float(page.evaluate(SCROLL))
    page.close()
    return found


def change(browser: Any, origin: str, token: str, recorder: Recorder) -> float:
    """Seconds from a commit until the page of the sweep shows it, the slowest of some."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{origin}/sweeps/{BIG}#token={token}")
    page.wait_for_selector("#connection.live")
    rng = np.random.default_rng(1)
    taken = []
    for _ in range(CHANGES):
        number = len(recorder.state.trials)
        run_trial(recorder, number, rng, 2)
        recorder.commit(2.0 * number)
        begun = time.perf_counter()
        page.wait_for_selector(f"text=/\\b{number + 1} of .* trials/")
        taken.append(time.perf_counter() - begun)
        time.sleep(float(rng.random()))
    page.close()
    return max(taken)


def slower(origin: str, token: str, recorder: Recorder) -> float:
    """How much slower a controller's commits are with viewers, in percent."""
    rng = np.random.default_rng(2)
    taken: dict[int, list[float]] = {0: [], VIEWERS: []}
    for block in range(2 * BLOCKS):
        count = VIEWERS if block % 2 else 0
        with viewing(origin, token, count):
            time.sleep(SETTLE_SECONDS)
            for _ in range(COMMITS):
                number = len(recorder.state.trials)
                run_trial(recorder, number, rng, 2)
                begun = time.perf_counter()
                recorder.commit(2.0 * number)
                taken[count].append(time.perf_counter() - begun)
                time.sleep(PAUSE_SECONDS)
    alone, watched = (statistics.median(taken[count]) for count in (0, VIEWERS))
    return 100.0 * (watched / alone - 1.0)


@contextlib.contextmanager
def viewing(origin: str, token: str, count: int) -> Iterator[None]:
    """So many viewers, in a process of their own: each reads what the server tells its page."""
    command = [sys.executable, __file__, "--viewers", str(count), origin, token]
    process = subprocess.Popen(command) if count else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait(timeout=30)


def view(origin: str, token: str) -> None:
    """What the page of a sweep does, without drawing it."""
    host = origin.removeprefix("http://")
    headers = {"Authorization": f"Bearer {token}"}
    asking = http.client.HTTPConnection(host)
    asking.request("GET", f"/api/sweeps/{BIG}", headers=headers)
    asking.getresponse().read()
    asking.request("GET", f"/api/sweeps/{BIG}/table", headers=headers)
    table = json.loads(asking.getresponse().read())
    asking.close()
    events = http.client.HTTPConnection(host)
    since = f"since={table['version']}&epoch={table['epoch']}"
    events.request("GET", f"/api/events?sweep={BIG}&{since}", headers=headers)
    stream = events.getresponse()
    while stream.readline():
        pass


def peak_megabytes(pid: int) -> float:
    """The largest resident memory of a process so far (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1e3


def measure(trials: int, sweeps: int) -> dict[str, Any]:
    """Every figure."""
    from browser import browser, executable

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        for number in range(sweeps - 1):
            write(store, f"sweep-{number}", 20 + number % 20)
        write(store, BIG, trials)
        ledger = Ledger.open(store)
        with studio(store) as (origin, token, pid):
            time.sleep(1.0)  # a person types the address
            path = executable()
            found: dict[str, Any] = {"trials": trials, "sweeps": sweeps}
            if path is not None:
                with browser(path) as running:
                    found["first_content_seconds"] = first_contents(running, origin, token)
                    found["frames_per_second"] = frames(running, origin, token)
                    recorder = ledger.acquire(BIG)
                    found["change_seconds"] = change(running, origin, token, recorder)
            else:
                recorder = ledger.acquire(BIG)
            found["slower_percent"] = slower(origin, token, recorder)
            found["server_megabytes"] = peak_megabytes(pid)
        ledger.close()
    return {name: round(one, 3) if isinstance(one, float) else one for name, one in found.items()}


def claims(found: dict[str, Any]) -> list[Claim]:
    """The limits of the studio."""
    limits = [at_most(name, found.get(name), limit) for name, limit in LIMITS.items()]
    return [
        *limits,
        at_least("frames_per_second", found.get("frames_per_second"), MIN_FRAMES),
    ]


def main() -> int:
    """Measure once and print the figures."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=10_000)
    options.add_argument("--quick", action="store_true", help="1,000 trials, 20 sweeps")
    options.add_argument("--check", action="store_true", help=CHECK)
    options.add_argument("--viewers", nargs=3, metavar=("COUNT", "ORIGIN", "TOKEN"))
    given = options.parse_args()
    if given.viewers:
        count, origin, token = given.viewers
        threads = [threading.Thread(target=view, args=(origin, token)) for _ in range(int(count))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 0
    sys.path[:0] = [str(TESTS)]  # tests/browser.py
    found = measure(1000, 20) if given.quick else measure(given.trials, 100)
    print(json.dumps(found))
    return conclude(claims(found)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
