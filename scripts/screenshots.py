"""Make the pictures of the documentation: python scripts/screenshots.py

The script tunes the workloads of three configurations, `nmt` last. While that runs it takes
pictures of the terminal, of its page in the studio and, with Ray, of the Ray dashboard; afterwards
of the other pages, the report and optuna-dashboard. It takes about 15 minutes, a browser
(python tests/browser.py), pillow and optuna-dashboard.

    --store FOLDER      keep the sweeps; if nmt is there already, only what comes afterwards
    --width 390         as a phone shows it
    KEY=VALUE           changes of the configuration of nmt
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import browser, install  # noqa: E402
from rich.console import Console  # noqa: E402

from automl.core.state import Snapshot  # noqa: E402
from automl.ledger import Ledger  # noqa: E402
from automl.report.page import save  # noqa: E402
from automl.report.record import Record  # noqa: E402
from automl.report.terminal import SweepView  # noqa: E402
from automl.studio.server import StudioServer  # noqa: E402
from scripts.studio_states import keep  # noqa: E402

SWEEP = "nmt"
OTHERS = {"sentiment": "sentiment", "images": "image_classification"}  # with their files
LIVE = {f"/sweeps/{SWEEP}": ("sweep", 1000)}  # with the height of the window
STUDIO = {
    "/": ("sweeps", 420),
    f"/sweeps/{SWEEP}/trials": ("trials", 820),
}
TOKEN = Path.home() / ".ray" / "auth_token"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--store", type=Path, help="default: a temporary folder")
    parser.add_argument("--width", type=int, default=1400, help="of the window, in pixels")
    parser.add_argument("--dispatcher", default="ray", choices=("ray", "local"))
    parser.add_argument("--trials", type=int, default=20, help="of nmt, within the time it has")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args()
    path = install()
    if path is None:
        sys.exit("no browser can be had")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser(path) as running:
        store = given.store or Path(folder) / ".automl"
        page = running.new_page(viewport={"width": given.width, "height": 1000})
        known = names(store)
        if SWEEP not in known:
            common = ("--store", store, "--dispatcher", given.dispatcher)
            for name in OTHERS.keys() - known:
                sweep(OTHERS[name], *common, "--trials", 6).wait(timeout=600)
            process = sweep(SWEEP, *given.changes, *common, "--trials", given.trials)
            try:
                with contextlib.closing(wait(store, given.trials // 2)) as ledger:
                    ray_dashboard(running, ledger.snapshot(SWEEP).dashboard, given.out)
                    terminal(ledger.snapshot(SWEEP), given.out / "terminal.svg")
                    studio(page, ledger, store, LIVE, given.out)
                process.wait(timeout=1800)
            finally:
                process.terminate()
        with contextlib.closing(Ledger.open(store, readonly=True)) as ledger:
            studio(page, ledger, store, STUDIO | (LIVE if SWEEP in known else {}), given.out)
            report(page, ledger, Path(folder), given.out)
            with optuna_dashboard(ledger) as address:
                page.goto(address)
                page.wait_for_selector(".main-svg", timeout=60_000)
                time.sleep(2)
                keep(page, given.out / "optuna-dashboard.png")


def names(store: Path) -> list[str]:
    """The sweeps of a store, which need not exist."""
    if not store.exists():
        return []
    with contextlib.closing(Ledger.open(store, readonly=True)) as ledger:
        return [info.name for info in ledger.sweeps()]


def sweep(name: str, *words: object) -> subprocess.Popen[bytes]:
    """Start the sweep of a configuration."""
    config = str(ROOT / "configs" / f"{name}.yaml")
    command = [sys.executable, "-m", "automl", "sweep", config, *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT)


def wait(store: Path, num_ended: int) -> Ledger:
    """The store, once so many trials have ended."""
    for _ in range(1200):
        time.sleep(1)
        with contextlib.suppress(Exception):
            ledger = Ledger.open(store, readonly=True)
            if sum(trial.state.finished for trial in ledger.trials(SWEEP)) >= num_ended:
                return ledger
            ledger.close()
    raise SystemExit("the sweep did not get going")


def studio(
    page: Any, ledger: Ledger, store: Path, pages: dict[str, tuple[str, int]], out: Path
) -> None:
    """Pages of the studio; the trials in the dark theme."""
    with StudioServer(ledger, store=str(store)).in_thread() as server:
        for path, (name, height) in pages.items():
            page.set_viewport_size({"width": page.viewport_size["width"], "height": height})
            page.emulate_media(color_scheme="dark" if name == "trials" else "light")
            page.goto(server.address(path))
            page.wait_for_selector("body[data-ready]")
            page.wait_for_selector("#connection.live")
            page.wait_for_timeout(1000)
            keep(page, out / f"studio-{name}.png")
        page.emulate_media(color_scheme="light")


def ray_dashboard(running: Any, address: str, out: Path) -> None:
    """The page of the actors, on which the workers of the sweep are; nothing without Ray."""
    if not address:
        return
    headers = {"Authorization": f"Bearer {TOKEN.read_text().strip()}"} if TOKEN.exists() else {}
    context = running.new_context(
        viewport={"width": 1560, "height": 560}, extra_http_headers=headers
    )
    page = context.new_page()
    page.goto(f"{address.rstrip('/')}/#/actors", timeout=60_000)
    with contextlib.suppress(Exception):
        page.wait_for_selector("text=worker 0", timeout=60_000)
    keep(page, out / "ray-dashboard.png")
    context.close()


def report(page: Any, ledger: Ledger, folder: Path, out: Path) -> None:
    """The beginning of the report."""
    file = folder / "report.html"
    save(Record.read(ledger, SWEEP), file)
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=120_000)
    keep(page, out / "report.png")


def terminal(snapshot: Snapshot, path: Path) -> None:
    """The live view at 84 columns."""
    with tempfile.TemporaryFile("w") as nowhere:
        console = Console(record=True, width=84, height=24, file=nowhere, force_terminal=True)
        console.print(SweepView(snapshot, 24))
        svg(console, path, "automl watch")


def svg(console: Console, path: Path, title: str) -> None:
    """As rich draws a terminal, without the font that it would load from elsewhere."""
    text = console.export_svg(title=title)
    path.write_text(re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL), encoding="utf-8")


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def optuna_dashboard(ledger: Ledger) -> Iterator[str]:
    """The page of the sweep there."""
    import optuna
    from optuna_dashboard import wsgi

    from automl.integrations.optuna_view import study_of

    storage = optuna.storages.InMemoryStorage()
    study_of(ledger.snapshot(SWEEP), storage)
    server = make_server("127.0.0.1", 0, wsgi(storage), handler_class=_Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/dashboard/studies/0"
    finally:
        server.shutdown()


if __name__ == "__main__":
    main()
