"""The pages in a real browser: live, by keyboard, accessible, on a phone, in both themes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hostile_sweeps
import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from report_sweeps import write_sweep
from studio_stores import Client, begin_trial, controller, run_trial, serving

from automl.cli import cli
from automl.core.events import Begun, Closed, Ended, Proposed, SweepEvent
from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger
from workers.protocol import Ending, Outcome, Report

PAGES = ("/", "/sweeps/toy", "/sweeps/toy/trials/1")


@contextmanager
def opened(chromium: Any, client: Client, path: str, **options: Any) -> Iterator[Any]:
    """A page that has been shown; errors of scripts and of the policy fail the test."""
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(30_000)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: None if is_expected(m) else wrong.append(m.text))
    own = client.server.origin
    page.on("request", lambda r: None if r.url.startswith((own, "blob:")) else wrong.append(r.url))
    try:
        page.goto(client.server.address(path))
        page.wait_for_selector("body[data-ready]")
        yield page
        assert sorted(set(wrong)) == []
    finally:
        context.close()


def is_expected(message: Any) -> bool:
    return message.type not in ("error", "warning") or "status of 404" in message.text


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


def test_no_page_is_wider_than_the_window(chromium: Any, two: Client) -> None:
    with opened(chromium, two, "/") as page:
        for path in (*PAGES, "/sweeps/toy-2"):
            go(page, two, path)
            for width in (1900, 700, 375):
                page.set_viewport_size({"width": width, "height": 800})
                page.wait_for_timeout(50)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_token_leaves_the_address_and_reaches_other_tabs(chromium: Any, two: Client) -> None:
    with opened(chromium, two, "/sweeps/toy") as page:
        assert "token" not in page.url
        other = page.context.new_page()
        other.goto(two.server.origin + "/sweeps/toy-2")
        other.wait_for_selector("h1:has-text('toy-2')")


def test_without_a_token_it_is_asked_for(chromium: Any, two: Client) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(two.server.origin + "/sweeps/toy")
    page.wait_for_selector("h1:has-text('Token needed')")
    assert "loss" not in page.content()
    page.keyboard.type(two.server.address())  # the field has the focus; a whole address will do
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('toy')")
    context.close()


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
        # A process of its own works it out, which takes long on a machine that is busy.
        page.wait_for_selector(".answer .headline:has-text('Recommended: ')", timeout=120_000)
        go(page, client, f"/sweeps/toy/trials/{number}")
        recorder.apply(Report(number, 1, 1, 2, {"loss": 2.5}, 2.0))
        recorder.commit(103.0)
        page.wait_for_selector(f".running li:has-text('Trial {number}'):has-text('step 2')")
        go(page, client, "/")
        page.wait_for_selector(".best >> text=-6")
        run_trial(recorder, -7.0, 104.0)
        page.wait_for_selector(".best >> text=-7")


def test_the_studio_and_the_terminal_have_one_answer(chromium: Any, two: Client) -> None:
    with opened(chromium, two, "/sweeps/toy") as page:
        page.wait_for_selector(".answer .headline:has-text('Recommended: ')")
        words = ["best", "toy", "--store", str(Path(two.server.watcher.ledger.name).parent)]
        shown = CliRunner().invoke(cli, words).output
        assert page.inner_text(".answer .headline") in shown
        assert page.locator(".parameter").count() >= 3
        assert "asked for 9 GB" in page.inner_text(".part-failures")


def test_trials_are_filtered_sorted_and_exported(chromium: Any, two: Client) -> None:
    with opened(chromium, two, "/sweeps/toy") as page:
        page.wait_for_selector(".told:has-text('24 trials')")
        page.fill("#filter", "loss < 1 and optimizer = adam")
        told = page.inner_text(".told")
        assert told.endswith(" of 24 trials")
        cells = page.locator(".trials tbody td:nth-child(2)")
        losses = [float(text) for text in cells.all_inner_texts() if text]
        assert losses == sorted(losses), "the best first"
        assert len(losses) == int(told.split()[0])
        with page.expect_download() as download:
            page.click("button:text-is('JSON')")
        rows = json.loads(Path(download.value.path()).read_text())
        assert [row["optimizer"] for row in rows] == ["adam"] * len(losses)
        assert [round(row["loss"], 3) for row in rows] == pytest.approx(losses, abs=2e-3)
        with page.expect_download() as download:
            page.click("button:text-is('CSV')")
        assert Path(download.value.path()).read_text().startswith("number,state,")
        page.click("th button[data-key='goal:loss']")
        losses = [float(text) for text in cells.all_inner_texts() if text]
        assert losses == sorted(losses, reverse=True)
        page.fill("#filter", "los > 1")
        assert page.inner_text(".told") == "there is no column 'los': did you mean 'loss'?"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", "abcd"), ("bleu > 20", "bd"), ("bleu >= 20 and precision = bf16", "b"),
        ("precision = bf16 or precision = fp32", "abc"), ("not (bleu > 20)", "ac"),
        ("precision != bf16", "cd"), ("model.lr = 1e-3", "a"), ("crash", "c"),
        ("state ~ COMP", "abd"), ("bleu = none", "c"), ("flag = true", "b"),
        ("'is odd' = \"x y\"", "d"),
    ],
)  # fmt: skip
def test_the_language_of_filters(chromium: Any, two: Client, text: str, kept: str) -> None:
    rows = {
        "a": {"bleu": 10, "precision": "bf16", "state": "completed", "model.lr": 1e-3},
        "b": {"bleu": 20.5, "precision": "bf16", "state": "completed", "flag": True},
        "c": {"bleu": None, "precision": "fp32", "state": "crashed"},
        "d": {"bleu": 30, "state": "completed", "is odd": "x y"},
    }
    names = sorted({name for row in rows.values() for name in row})
    script = """async ([text, rows, names]) => {
        const { parseFilter } = await import("/static/filter.js");
        const keep = parseFilter(text, names);
        return Object.keys(rows).filter((key) => keep((name) => rows[key][name])).join("");
    }"""
    page = filter_page(chromium, two)
    assert page.evaluate(script, [text, rows, names]) == kept


_FILTER_PAGES: dict[int, Any] = {}


def filter_page(chromium: Any, client: Client) -> Any:
    key = id(client)
    if key not in _FILTER_PAGES:
        page = chromium.new_context().new_page()
        page.goto(client.server.origin + "/")
        _FILTER_PAGES[key] = page
    return _FILTER_PAGES[key]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bleu >", "'bleu >' needs a value after it"),
        ("bleu > high", "'bleu >' needs a number, got 'high'"),
        ("> 3", "'>' needs a column before it, such as: bleu > 20"),
        ("(bleu > 3", "a ) is missing"),
        ("bleu > 3 4", "'4' was not expected: join comparisons with and, or"),
        ('"half', "'\"half' cannot be read"),
        ("bleu > 3 and", "the filter ends too early: a comparison is missing"),
    ],
)
def test_a_wrong_filter_is_explained(chromium: Any, two: Client, text: str, message: str) -> None:
    script = """async (text) => {
        const { parseFilter } = await import("/static/filter.js");
        try { parseFilter(text, ["bleu"]); } catch (error) { return error.message; }
    }"""
    assert filter_page(chromium, two).evaluate(script, text) == message


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


def test_the_log_of_a_finished_trial_stays_if_the_page_is_told_anew_meanwhile(
    chromium: Any, store: str, client: Client
) -> None:
    logs = Ledger.open(store).files("toy") / "trials" / "1" / "logs"
    logs.make()
    with logs.open("attempt-1-rank-0.log", "w") as rank:
        rank.write("all of it\n")
    with opened(chromium, client, "/") as page:
        held: list[Any] = []
        told: list[Any] = []
        trial = client.server.origin + "/api/sweeps/toy/trials/1"
        page.route("**/log?*", lambda route: held.append(route))
        page.on("response", lambda found: told.append(found) if found.url == trial else None)
        go(page, client, "/sweeps/toy/trials/1")
        for _ in range(1000):  # it asks again when it begins to listen
            if held and len(told) > 1:
                break
            page.wait_for_timeout(20)
        held[0].continue_()
        page.wait_for_selector(".log:has-text('all of it')")
        assert not page.is_visible("#log-which"), "there is one rank"


def test_hostile_sweeps_are_shown(chromium: Any, tmp_path: Path) -> None:
    """Extreme numbers and names that are HTML, scripts, control characters, lone surrogates."""
    names = write_hostile(tmp_path, range(6))
    with serving(str(tmp_path)) as client, opened(chromium, client, "/") as page:
        page.add_init_script("window.alert = () => console.error('a script of the ledger ran')")
        page.wait_for_selector("#connection.live")
        for name in names:
            numbers = [one["number"] for one in client.get(f"/api/sweeps/{name}/trials")]
            for path in ("", *(f"/trials/{number}" for number in numbers[:2])):
                go(page, client, f"/sweeps/{name}{path}")
                text = page.inner_text("body")
                assert [c for c in hostile_sweeps.HOSTILE if c in text] == [], path
                assert page.locator("main h1").count() == 1


def write_hostile(folder: Path, seeds: Any) -> list[str]:
    """The hostile sweeps of the report's tests in a store; their names.

    A goal that was parsed has a harmless name, so theirs get one.
    """
    ledger = Ledger.open(folder, create=True)
    names = []
    for seed in seeds:
        record = hostile_sweeps.record(seed)
        goals = {goal.metric: f"goal{i}" for i, goal in enumerate(record.spec.goals)}
        harmless = tuple(replace(goal, metric=goals[goal.metric]) for goal in record.spec.goals)
        spec = replace(record.spec, goals=harmless, constraints=())
        recorder = ledger.acquire(name := ledger.create_sweep(spec, {}))
        for trial in record.trials:
            for event in hostile_events(trial, goals):
                recorder.apply(event)
        recorder.apply(Closed("finished"))
        recorder.commit(1e9)
        ledger.release(name)
        names.append(name)
    ledger.close()
    return names


def hostile_events(trial: Trial, goals: dict[str, str]) -> Iterator[SweepEvent]:
    number, failed = trial.number, trial.state is TrialState.FAILED
    yield Proposed(number, trial.params, trial.source)
    yield Begun(number, 1, trial.started or 0.0)
    for point in trial.reports:
        metrics = {goals[name]: value for name, value in point.metrics.items()}
        yield Report(number, 1, point.sequence, point.step, metrics, point.seconds)
    if trial.state.finished:
        outcome = Outcome(
            number,
            1,
            Ending.FAILED if failed else Ending.COMPLETED,
            {goals.get(name, name): value for name, value in trial.metrics.items()},
            failure=trial.failure,
            message=trial.message,
            seconds=trial.seconds,
            peak_memory_bytes=trial.peak_memory_bytes,
        )
        state = TrialState.FAILED if failed else TrialState.COMPLETED
        yield Ended(outcome, state, trial.failure, trial.message, trial.ended or 1.0)


def test_none_is_told_from_a_parameter_that_is_inactive(client: Client, store: str) -> None:
    with controller(store) as recorder:
        number = len(recorder.state.trials)
        recorder.apply(Proposed(number, {"lr": 1e-3, "layout": None}, "enqueued"))
        recorder.commit()
    table = client.get("/api/sweeps/toy/table")
    names = [*table["facts"], *(goal["metric"] for goal in table["goals"]), *table["params"]]
    row = dict(zip(names, table["rows"][-1], strict=False))
    assert (row["layout"], row["momentum"]) == ("none", None)
