"""An operator acts in a browser on a sweep that runs; a viewer finds nothing to press."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from automl.studio.tokens import Role
from processes import of, running, wait_until
from report_sweeps import write_sweep
from studio_stores import Client, serving
from test_studio_pages import go, opened, violations

from automl.core import Budget, TrialState
from automl.ledger import Ledger


@contextmanager
def viewed(chromium: Any, client: Client, path: str, role: Role) -> Iterator[Any]:
    """A page with the token of another role."""
    with opened(chromium, client, "/openapi") as page:
        page.evaluate("sessionStorage.clear()")
        page.goto("about:blank")
        page.goto(client.server.address(path, role))
        page.wait_for_selector("body[data-ready]")
        yield page


def test_an_operator_steers_a_running_sweep(chromium: Any, tmp_path: Path) -> None:
    with running(tmp_path, resumable=True) as (ledger, process), serving(str(tmp_path)) as client:
        with opened(chromium, client, "/sweeps/test") as page:
            page.fill("#act-name", "ann")
            page.select_option("#act-parameter", label="optimizer")
            page.uncheck(".limit-values label:has-text('adam') input")
            page.click("button:text-is('Limit')")
            page.wait_for_selector(".held:has-text('optimizer: sgd')")
            page.fill("#act-trials", "50")
            page.click("button:text-is('Set the budget')")
            page.wait_for_selector("#acted:has-text('The budget is now: trials 50.')")
            go(page, client, "/sweeps/test/trials/0")
            page.click("button:text-is('Pause')")
            page.wait_for_selector(".title .pill.paused")
            wait_until(lambda: of(ledger, 0, TrialState.PAUSED))
            page.click("button:text-is('Resume')")
            page.wait_for_selector("#acted:has-text('Trial 0 goes on next.')")
            go(page, client, "/sweeps/test/trials/1")
            page.click("button:text-is('Stop')")
            page.click("button:text-is('Stop trial 1')")
            page.wait_for_selector(".title .pill.stopped")
            page.wait_for_selector(".events:has-text('ann: stop')")
            page.click(".star-button")
            page.wait_for_selector(".star-button[aria-pressed='true']")
            page.fill("input[aria-label='Add a tag']", "odd")
            page.keyboard.press("Enter")
            page.wait_for_selector(".marks .tag:has-text('odd')")
            go(page, client, "/sweeps/test/trials?filter=star+%3D+true+and+tags+~+odd")
            page.wait_for_selector(".told:has-text('1 of ')")
            go(page, client, "/sweeps/test")
            page.wait_for_selector(".events:has-text('budget: trials 50')")
            page.click("button:text-is('Stop the sweep')")
            page.click("button:text-is('Stop it, results count')")
            page.wait_for_selector(".title .pill.finished")
            page.click("summary:text-is('In a shell')")
            assert "automl resume test --store" in page.inner_text(".steer .shell >> nth=0")
        process.join()
        assert ledger.spec("test").budget == Budget(trials=50)
        assert {one.by for one in ledger.commands("test")} == {"ann"}


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AGENT])
def test_who_may_not_act_finds_no_buttons(
    chromium: Any, client: Client, role: Role, store: str
) -> None:
    client.post("toy/mark", {"star": True, "add_tags": ["seen"], "note": "a note"})
    with viewed(chromium, client, "/sweeps/toy", role) as page:
        page.wait_for_selector(".marks:has-text('seen')")
        assert "a note" in page.inner_text(".marks")
        assert page.locator(".marks button, .steer").count() == 0
        go(page, client, "/sweeps/toy/trials/1")
        page.wait_for_selector(".title")
        assert page.locator(".acts button, .marks button").count() == 0
    ledger = Ledger.open(store, readonly=True)
    assert len(ledger.commands("toy")) == 1
    ledger.close()


def test_a_sweep_is_archived_and_found_by_its_tag(chromium: Any, tmp_path: Path) -> None:
    write_sweep(tmp_path, 4)
    store = write_sweep(tmp_path, 4)
    with serving(store) as client, opened(chromium, client, "/sweeps/toy") as page:
        page.fill("input[aria-label='Add a tag']", "night")
        page.keyboard.press("Enter")
        page.wait_for_selector(".marks .tag:has-text('night')")
        go(page, client, "/")
        page.fill("#search", "night")
        page.wait_for_selector(".told:has-text('1 of 2 sweeps')")
        go(page, client, "/sweeps/toy")
        page.click("button:text-is('Archive')")
        page.wait_for_selector("button:text-is('Take out of the archive')")
        go(page, client, "/")
        page.wait_for_selector("a:text-is('toy-2')")
        assert page.locator("a:text-is('toy')").count() == 0
        page.check(".shelf input")
        page.wait_for_selector("a:text-is('toy')")


def test_what_is_refused_is_shown(chromium: Any, client: Client) -> None:
    with opened(chromium, client, "/sweeps/toy") as page:
        page.select_option("#act-parameter", label="lr")
        page.fill("input[aria-label='Smallest lr']", "0.05")
        page.fill("input[aria-label='Largest lr']", "0.01")
        page.on("console", lambda message: None)
        page.fill("#act-time", "soon")
        page.click("button:text-is('Set the budget')")
        page.wait_for_selector(".wrong:has-text('A time is like 90s, 10m or 1h30m.')")
        page.fill("#act-time", "1h30m")
        page.click("button:text-is('Set the budget')")
        page.wait_for_selector("#acted:has-text('time 5400')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_with_actions_are_accessible(chromium: Any, client: Client, scheme: str) -> None:
    client.post("toy/mark", {"star": True, "add_tags": ["seen"], "note": "a note"})
    client.post("toy/pin", {"limits": {"optimizer": "adam"}})
    options = {"color_scheme": scheme, "bypass_csp": True}
    with opened(chromium, client, "/sweeps/toy", **options) as page:
        for path in ("/sweeps/toy", "/sweeps/toy/trials/1", "/", "/openapi"):
            go(page, client, path)
            page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
            assert violations(page) == [], path
            page.set_viewport_size({"width": 375, "height": 800})
            page.wait_for_timeout(50)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
            page.set_viewport_size({"width": 1280, "height": 900})


def test_an_operator_acts_by_keyboard(chromium: Any, client: Client) -> None:
    with opened(chromium, client, "/sweeps/toy/trials/1") as page:
        page.wait_for_selector(".star-button")
        page.focus("#main")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Try again":
                break
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".star-button[aria-pressed='true']")


def test_the_api_is_shown(chromium: Any, client: Client) -> None:
    with opened(chromium, client, "/openapi") as page:
        page.click("summary:has-text('/trials/{trial}/tell')")
        text = page.inner_text("#tell")
        assert "metrics (needed)" in text
        assert "curl -X POST" in text
        assert "409" in text


def test_durations_are_read(chromium: Any, client: Client) -> None:
    script = """async (texts) => {
        const { seconds } = await import("/static/actions.js");
        return texts.map((text) => String(seconds(text)));
    }"""
    texts = ["90s", "10m", "1h30m", "1.5h", "2d", "soon", "10", "-1h", "0s", "1h x"]
    with opened(chromium, client, "/openapi") as page:
        found = page.evaluate(script, texts)
    assert found == ["90", "600", "5400", "5400", "172800", *["NaN"] * 5]
