"""The live page: only with its token, and up to date while the sweep goes on."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from report_sweeps import write_sweep

from automl.core.events import Begun, Ended, Proposed
from automl.core.trial import TrialState
from automl.ledger import Ledger
from automl.report.dashboard import Dashboard
from automl.report.dashboard_server import serving
from automl.report.figures import ORDER
from workers.protocol import Ending, Outcome


def grow(store: str, loss: float) -> None:
    """One more trial."""
    ledger = Ledger.open(store)
    recorder = ledger.acquire("toy")
    number = len(recorder.trials)
    params = {"lr": 1e-3, "batch_size": 32, "optimizer": "adam", "layout": "separate"}
    outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": loss}, seconds=1.0)
    for event in (Proposed(number, params, "bayes"), Begun(number, 1, 100.0)):
        recorder.apply(event)
    recorder.apply(Ended(outcome, TrialState.COMPLETED, at=101.0))
    recorder.commit(101.0, state="finished")
    ledger.close()


def test_the_page_follows_the_sweep(chromium: Any, tmp_path: Path) -> None:
    store = write_sweep(tmp_path / "runs", 8)
    ledger = Ledger.open(store, readonly=True)
    board = Dashboard(ledger, "toy", interval=0.2).start()
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    try:
        with serving(board) as server:
            page, wrong = context.new_page(), []
            page.on(
                "console",
                lambda message: wrong.append(message.text) if message.type == "error" else None,
            )
            page.on("pageerror", lambda error: wrong.append(str(error)))
            own = server.address.split("?")[0]
            page.on(
                "request",
                lambda r: (
                    None if r.url.startswith((own, "data:", "blob:")) else wrong.append(r.url)
                ),
            )
            page.goto(server.address)
            page.wait_for_selector("body[data-version]", timeout=60_000)
            assert "token" not in page.url
            assert "8 of 8 trials" in page.inner_text("#lines")
            assert page.evaluate("document.querySelectorAll('#progress .main-svg').length") > 0
            grow(store, -5.0)
            page.wait_for_selector("#lines:has-text('Best loss: -5 in trial 8')", timeout=60_000)
            assert wrong == []
    finally:
        context.close()
        board.close()
        ledger.close()


def test_nothing_is_told_without_the_token(tmp_path: Path) -> None:
    store = write_sweep(tmp_path / "runs", 3)
    ledger = Ledger.open(store, readonly=True)
    with serving(Dashboard(ledger, "toy")) as server:
        own = server.address.split("?")[0]
        for path in ("", "state", "plotly.js", "?token=wrong", "?token="):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(own + path)
            assert error.value.code == 403
            assert b"toy" not in error.value.read()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"plotly.js" in opener.open(server.address).read()
        state = json.loads(opener.open(own + "state").read())
        assert (state["title"], len(state["panels"])) == ("toy", len(ORDER))
        assert server.server_address[0] == "127.0.0.1"
    ledger.close()
