"""Make every picture of the documentation: python scripts/screenshots.py

The script runs a small sweep on Ray. Meanwhile it takes pictures of the terminal, the studio and
the Ray dashboard, and afterwards of the report and of optuna-dashboard. It needs a browser
(python tests/browser.py) and optuna-dashboard.
"""

from __future__ import annotations

import argparse
import contextlib
import os
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

from automl.core.snapshot import Snapshot  # noqa: E402
from automl.ledger import Ledger  # noqa: E402
from automl.report.page import save  # noqa: E402
from automl.report.record import Record  # noqa: E402
from automl.report.summary import print_summary  # noqa: E402
from automl.report.terminal_view import SweepView  # noqa: E402
from automl.studio.server import StudioServer  # noqa: E402

SWEEP = "spirals"
STUDIO = {
    "/": "sweeps",
    f"/sweeps/{SWEEP}": "sweep",
    f"/sweeps/{SWEEP}/trials": "trials",
    f"/sweeps/{SWEEP}/understand": "understand",
}
TOKEN = Path.home() / ".ray" / "auth_token"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--trials", type=int, default=60)
    given = parser.parse_args()
    path = install()
    if path is None:
        sys.exit("no browser can be had")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser(path) as running:
        command = [
            sys.executable,
            str(ROOT / "examples" / "own_pytorch_loop.py"),
            "--trials",
            str(given.trials),
        ]
        sweep = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            ledger = wait(Path(folder) / ".automl", 8)
            while_running(running, ledger, given.out)
            sweep.wait(timeout=900)
        finally:
            sweep.terminate()
        afterwards(running, ledger, given.out, Path(folder))
        ledger.close()


def wait(store: Path, num_ended: int) -> Ledger:
    """The store, once so many trials have ended."""
    for _ in range(600):
        time.sleep(1)
        with contextlib.suppress(Exception):
            ledger = Ledger.open(store, readonly=True)
            if sum(trial.state.finished for trial in ledger.trials(SWEEP)) >= num_ended:
                return ledger
            ledger.close()
    raise SystemExit("the sweep did not get going")


def while_running(running: Any, ledger: Ledger, out: Path) -> None:
    snapshot = ledger.snapshot(SWEEP)
    ray_dashboard(running, snapshot.dashboard, out / "ray-dashboard.png")
    terminal(ledger.snapshot(SWEEP), out / "terminal.svg")
    with StudioServer(ledger, store=str(Path(ledger.name).parent)).in_thread() as server:
        page = running.new_page(viewport={"width": 1280, "height": 1000})
        for path, name in STUDIO.items():
            page.goto(server.address(path))
            page.wait_for_selector("body[data-ready]")
            page.wait_for_selector("#connection.live")
            time.sleep(15)  # the surrogates have answered
            page.screenshot(path=str(out / f"studio-{name}.png"))
        page.close()


def ray_dashboard(running: Any, address: str, path: Path) -> None:
    """The page of the actors, on which the workers of the sweep are."""
    headers = {"Authorization": f"Bearer {TOKEN.read_text().strip()}"} if TOKEN.exists() else {}
    context = running.new_context(
        viewport={"width": 1560, "height": 560}, extra_http_headers=headers
    )
    page = context.new_page()
    page.goto(f"{address.rstrip('/')}/#/actors", timeout=60_000)
    with contextlib.suppress(Exception):
        page.wait_for_selector("text=worker 0", timeout=60_000)
    page.screenshot(path=str(path))
    context.close()


def afterwards(running: Any, ledger: Ledger, out: Path, folder: Path) -> None:
    record = Record.read(ledger, SWEEP)
    console = Console(
        record=True, width=84, file=(folder / "out.txt").open("w"), force_terminal=True
    )
    print_summary(console, record.snapshot, record.space)
    svg(console, out / "summary.svg", "automl sweep")
    save(record, folder / "report.html")
    page = running.new_page(viewport={"width": 1160, "height": 1000})
    page.goto((folder / "report.html").as_uri())
    page.wait_for_selector("body[data-drawn=all]", timeout=120_000)
    page.screenshot(path=str(out / "report.png"))
    for key in ("parallel", "importance", "dependence"):
        page.locator(f"#{key}").screenshot(path=str(out / f"report-{key}.png"))
    page.close()
    with optuna_dashboard(ledger) as address:
        page = running.new_page(viewport={"width": 1300, "height": 900})
        page.goto(f"{address}/dashboard/studies/0")
        page.wait_for_selector(".main-svg", timeout=60_000)
        time.sleep(2)
        page.screenshot(path=str(out / "optuna-dashboard.png"))
        page.close()


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
    from optuna_dashboard import wsgi

    from automl.integrations.optuna_storage import LedgerStorage

    server = make_server(
        "127.0.0.1", 0, wsgi(LedgerStorage(Path(ledger.name).parent)), handler_class=_Silent
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


if __name__ == "__main__":
    main()
