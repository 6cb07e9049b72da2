"""A person acts in a browser on a sweep that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processes import of, running, wait_until
from studio_stores import serving
from test_studio_pages import go, opened

from automl.core import Budget, Command, TrialState


def test_a_running_sweep_is_steered(chromium: Any, tmp_path: Path) -> None:
    with running(tmp_path, resumable=True) as (ledger, process), serving(str(tmp_path)) as client:
        with opened(chromium, client, "/sweeps/test") as page:
            page.fill("#act-name", "ann")
            page.select_option("#act-parameter", label="optimizer")
            page.uncheck(".limit-values label:has-text('adam') input")
            page.click("button:text-is('Limit')")
            page.wait_for_selector(".held:has-text('optimizer: sgd')")
            page.fill("#act-time", "soon")
            page.click("button:text-is('Set the budget')")
            page.wait_for_selector(".wrong:has-text('A time is like 90s, 10m or 1h30m.')")
            page.fill("#act-time", "")
            page.fill("#act-trials", "50")
            page.click("button:text-is('Set the budget')")
            page.wait_for_selector("#acted:has-text('The budget is now: trials 50.')")
            go(page, client, "/sweeps/test/trials/0")
            page.click("button:text-is('Pause')")
            page.wait_for_selector(".trial .pill.paused")
            wait_until(lambda: of(ledger, 0, TrialState.PAUSED))
            go(page, client, "/sweeps/test/trials/1")
            page.click("button:text-is('Stop')")
            page.click("button:text-is('Stop trial 1')")
            page.wait_for_selector(".trial .pill.stopped")
            page.wait_for_selector(".events:has-text('ann: stop')")
            page.click("button:text-is('Try again')")
            page.wait_for_selector("#acted:has-text('test tries it next.')")
            go(page, client, "/sweeps/test")
            page.wait_for_selector(".events:has-text('budget: trials 50')")
            page.click("button:text-is('Stop the sweep')")
            page.click("button:text-is('Stop it, results count')")
            page.wait_for_selector(".part-head .pill.finished")
        process.join()
        assert ledger.spec("test").budget == Budget(trials=50)
        assert {one.by for one in ledger.events("test") if isinstance(one, Command)} == {"ann"}
