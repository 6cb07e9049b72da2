"""The pages in a real browser: live, by keyboard, accessible, in both themes; people act there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from processes import of, running, wait_until
from report_sweeps import write_sweep
from studio_stores import Client, begin_trial, controller, run_trial, serving

from automl.cli import cli
from automl.core import Budget, Command, TrialState
from workers.protocol import Report

PAGES = ("/", "/sweeps/toy", "/sweeps/toy/trials/1")


@contextmanager
def opened(chromium: Any, client: Client, path: str, **options: Any) -> Iterator[Any]:
    """A page that has been shown; errors of scripts and of the policy fail the test."""
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(30_000)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    bad = ("error", "warning")
    page.on("console", lambda m: wrong.append(m.text) if m.type in bad else None)
    own = client.server.origin
    page.on("request", lambda r: None if r.url.startswith((own, "blob:")) else wrong.append(r.url))
    try:
        page.goto(client.server.address(path))
        page.wait_for_selector("body[data-ready]")
        yield page
        assert [text for text in wrong if "status of 404" not in text] == []
    finally:
        context.close()


def go(page: Any, client: Client, path: str) -> None:
    """Another page in the same tab, which has the token."""
    page.goto(client.server.origin + path)
    page.wait_for_selector("body[data-ready]")


def violations(page: Any) -> list[str]:
    """What axe-core finds."""
    page.wait_for_selector("#connection.live")
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A store with two sweeps, which no test changes."""
    folder = tmp_path_factory.mktemp("two")
    write_sweep(folder, 24)
    store = write_sweep(folder, 12, goals=["minimize loss", "minimize peak_memory_bytes"])
    with serving(store) as served:
        yield served


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, two: Client, scheme: str) -> None:
    with opened(chromium, two, "/", color_scheme=scheme, bypass_csp=True) as page:
        for path in (*PAGES, "/sweeps/toy-2", "/nothing"):
            go(page, two, path)
            assert violations(page) == [], path


def test_without_a_token_it_is_asked_for(chromium: Any, two: Client) -> None:
    page = chromium.new_page()
    page.goto(two.server.origin + "/sweeps/toy")
    page.wait_for_selector("h1:has-text('Token needed')")
    assert "loss" not in page.content()
    page.keyboard.type(two.server.address())  # the field has the focus; a whole address will do
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('toy')")
    page.close()


def test_pages_follow_a_sweep(chromium: Any, store: str, client: Client) -> None:
    with opened(chromium, client, "/sweeps/toy") as page, controller(store) as recorder:
        page.wait_for_selector("#connection.live")
        page.wait_for_selector(".title .pill.running")
        number = begin_trial(recorder, loss=3.0)
        page.wait_for_selector(f".running >> text=Trial {number}")
        best = run_trial(recorder, -5.0, 101.0)
        page.wait_for_selector(f"tbody tr:nth-child(1)[data-row='{best}']")
        another = run_trial(recorder, -6.0, 102.0)
        page.wait_for_selector(f"tbody tr:nth-child(1)[data-row='{another}']")
        go(page, client, f"/sweeps/toy/trials/{number}")
        recorder.state.apply(Report(number, 1, 1, 2, {"loss": 2.5}, 2.0))
        recorder.commit(103.0)
        page.wait_for_selector(f".running li:has-text('Trial {number}'):has-text('step 2')")
        go(page, client, "/")
        page.wait_for_selector(".best >> text=-6")
        run_trial(recorder, -7.0, 104.0)
        page.wait_for_selector(".best >> text=-7")


def test_the_studio_has_the_answer_of_the_terminal_and_filters_and_sorts_trials(
    chromium: Any, two: Client
) -> None:
    with opened(chromium, two, "/sweeps/toy") as page:
        # A process of its own works it out, which takes long on a machine that is busy.
        page.wait_for_selector(".answer .headline:has-text('Recommended: ')", timeout=120_000)
        words = ["best", "toy", "--store", str(Path(two.server.watcher.ledger.name).parent)]
        assert page.inner_text(".answer .headline") in CliRunner().invoke(cli, words).output
        assert page.locator(".parameter").count() >= 3
        assert "asked for 9 GB" in page.inner_text(".part-failures")
        page.wait_for_selector(".told:has-text('24 trials')")
        page.fill("#filter", "loss < 1 and optimizer=adam")
        told = page.inner_text(".told")
        assert told.endswith(" of 24 trials")
        cells = page.locator(".trials tbody td:nth-child(2)")
        losses = [float(text) for text in cells.all_inner_texts() if text]
        assert losses == sorted(losses), "the best first"
        assert len(losses) == int(told.split()[0])
        page.click("th button[data-key='goal:loss']")
        losses = [float(text) for text in cells.all_inner_texts() if text]
        assert losses == sorted(losses, reverse=True)
        page.fill("#filter", "los > 1")
        assert page.inner_text(".told") == "there is no column 'los': did you mean 'loss'?"


FILTERS = {
    "": "abcd", "bleu > 20": "bd", "bleu>=20 and precision=bf16": "b", "precision != bf16": "cd",
    "model.lr = 1e-3": "a", "crash": "c", "comp bf16": "ab", "bleu = none": "c",
}  # fmt: skip


def test_the_language_of_filters(chromium: Any, two: Client) -> None:
    rows = {
        "a": {"bleu": 10, "precision": "bf16", "state": "completed", "model.lr": 1e-3},
        "b": {"bleu": 20.5, "precision": "bf16", "state": "completed", "flag": True},
        "c": {"bleu": None, "precision": "fp32", "state": "crashed"},
        "d": {"bleu": 30, "state": "completed", "is odd": "x y"},
    }
    names = sorted({name for row in rows.values() for name in row})
    script = """async ([texts, rows, names]) => {
        const { parseFilter } = await import("/static/filter.js");
        return texts.map((text) => {
            const keep = parseFilter(text, names);
            return Object.keys(rows).filter((key) => keep((name) => rows[key][name])).join("");
        });
    }"""
    with opened(chromium, two, "/") as page:
        assert page.evaluate(script, [list(FILTERS), rows, names]) == list(FILTERS.values())


def test_everything_is_reached_by_keyboard(chromium: Any, two: Client) -> None:
    with opened(chromium, two, "/") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "toy-2":
                break
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('toy-2')")
        page.wait_for_selector(".progressed .points")
        page.locator(".progressed .plot").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        trial = page.inner_text(".tip:not([hidden]) b")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h2:has-text('{trial}')")
        assert page.evaluate("document.activeElement.id") == trial.lower().replace(" ", "-")


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
