"""The report, written from a ledger and opened in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from report_sweeps import SPACE, write_sweep

import automl
from automl import config
from automl.cli import cli
from automl.core.standings import INFEASIBLE, Standings
from automl.ledger import Ledger
from automl.report.conclusion import certainty
from automl.report.effects import insights_of
from automl.report.figures import ORDER, draw
from automl.report.page import render, save
from automl.report.plotting import spread
from automl.report.recipe import recipe
from automl.report.record import Record
from automl.report.terminal_view import state_lines
from automl.result import Result
from automl.sweeps import load


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sweep(tmp_path_factory.mktemp("runs"))


def record_of(store: str) -> Record:
    ledger = Ledger.open(store, readonly=True)
    try:
        return Record.read(ledger, "toy")
    finally:
        ledger.close()


def opened(chromium: Any, path: Path) -> tuple[Any, list[str]]:
    """The page once all of its figures are drawn, and everything that went wrong."""
    page, wrong = chromium.new_page(viewport={"width": 1200, "height": 900}), []
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith("file:") else wrong.append(request.url),
    )
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-drawn=all]", timeout=60_000)
    return page, [text for text in wrong if not text.startswith(("data:", "blob:"))]


@pytest.mark.parametrize(
    ("goals", "num_fronts"), [("minimize loss", 2), (["minimize loss", "minimize size"], 2)]
)
def test_the_page_in_a_browser(chromium: Any, tmp_path: Path, goals: Any, num_fronts: int) -> None:
    store = write_sweep(tmp_path / "runs", goals=goals)
    file = tmp_path / "toy.html"
    done = CliRunner().invoke(cli, ["report", "toy", "--store", store, "-o", str(file)])
    assert done.exit_code == 0, done.output
    page, wrong = opened(chromium, file)
    assert wrong == []
    figures = page.evaluate(
        "[...document.querySelectorAll('.figure')]"
        ".map(f => [f.id, f.querySelectorAll('.plot path, .plot rect').length])"
    )
    assert {key.rsplit("-", 1)[0] for key, _ in figures} == set(ORDER)
    assert all(marks for _, marks in figures)
    assert len([key for key, _ in figures if key.startswith("pareto")]) == num_fronts
    assert page.locator("#parallel .strand").count() == 12
    assert "better" in page.inner_html("#pareto")
    assert page.locator("#front tbody tr").count() == (
        len(record_of(store).snapshot.pareto) if len(goals) == 2 else 0
    )
    assert page.inner_text("h1") == "toy"
    assert "<b>packed" in page.inner_text("#setup")
    for width in (1900, 700, 375):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert file.stat().st_size < 1_500_000
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_report(
    chromium: Any, runs: str, tmp_path: Path, scheme: str
) -> None:
    file = tmp_path / "toy.html"
    save(record_of(runs), file)
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn=all]", timeout=60_000)
    found = Axe().run(page).response["violations"]
    assert [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]] == []
    context.close()


def test_trials_are_selected_in_all_figures_and_in_the_table(
    chromium: Any, runs: str, tmp_path: Path
) -> None:
    file = tmp_path / "toy.html"
    save(record_of(runs), file)
    page, wrong = opened(chromium, file)
    every = page.locator("#trials tr[data-trial]:visible").count()
    plot = page.locator("#progress .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 30, steps=4)
    page.mouse.up()
    told = page.inner_text(".picked .told")
    count = int(told.split()[0])
    assert 0 < count < every
    assert page.locator("#trials tr[data-trial]:visible").count() == count
    assert page.locator("#parallel .faint").get_attribute("d")
    assert page.locator("#calibration .points.faded").count() > 0
    page.click("text=Show all")
    assert page.locator("#trials tr[data-trial]:visible").count() == every
    page.fill("#filter", "optimizer = sgd and los < 1")
    assert page.inner_text(".picked .told") == "there is no column 'los': did you mean 'loss'?"
    page.fill("#filter", "optimizer = sgd and loss < 1")
    shown = page.locator("#trials tr[data-trial]:visible").all_inner_texts()
    assert shown
    assert all("sgd" in line for line in shown)
    page.locator("#progress .plot").focus()
    page.keyboard.press("Escape")
    assert page.locator("#trials tr[data-trial]:visible").count() == every
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert page.inner_text(".picked .told") == "1 trial selected chosen one by one"
    with page.expect_download() as download:
        page.locator("#progress .tools >> text=Save").click()
    assert Path(download.value.path()).read_text().startswith("<svg")
    assert wrong == []
    page.close()


def test_a_notebook_shows_figures_in_a_frame(chromium: Any, runs: str, tmp_path: Path) -> None:
    html = load("toy", runs)._repr_html_()
    assert len(html) < 400_000
    file = tmp_path / "cell.html"
    file.write_text(f"<!doctype html><title>cell</title>{html}", encoding="utf-8")
    page = chromium.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-drawn=all]").wait_for(timeout=60_000)
    assert frame.locator("#parallel .strand").count() == 12
    assert wrong == []
    page.close()


def test_the_page_shows_results_warnings_and_setup(runs: str) -> None:
    record = record_of(runs)
    page = render(record)
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    best = record.snapshot.best
    assert best is not None
    assert f"in trial {best.number}" in text
    assert "with 90% probability it is between" in text
    assert "a fallback proposed 0 of the trials: the suggester" in text
    assert re.search(r"\d+% of the failures have batch_size", text)
    assert "lr, optimizer, momentum cannot change seconds_per_update" in text
    assert "abc123" in text
    assert "`loss` measures quality (to declare them: metrics=)" in text
    assert re.search(r"The estimate was within 20% in \d+ of \d+ trials", text)


def test_no_prediction_is_worse_than_the_worst_trial(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {
        "suggester": "random",
        "dispatcher": "inline",
        "store": str(tmp_path),
        "trials": 14,
    }
    result = automl.sweep(
        lambda trial: {"loss": float(rng.lognormal(0.0, 2.0))}, SPACE, "minimize loss", **options
    )
    record = Record.of(result.snapshot)
    insights = insights_of(record)
    assert re.search("another run of trial", certainty(record, insights))
    best = record.snapshot.best
    assert best is not None
    worst = max(value for _, value in record.scored())
    assert insights[0].model.another_run(record.space.encode([best.params]))[2] <= worst * (
        1 + 1e-6
    )


def test_on_a_phone_the_answer_comes_first_then_the_figure_then_the_contents(
    chromium: Any, runs: str, tmp_path: Path
) -> None:
    file = tmp_path / "toy.html"
    save(record_of(runs), file)
    page, wrong = opened(chromium, file)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(50)
    places = ["h1", ".headline", "#progress .plot", "nav.side", "#warnings", "#recipe", "#trials"]
    tops = [page.locator(place).first.bounding_box()["y"] for place in places]
    assert tops == sorted(tops)
    assert tops[2] < 844, "the figure is on the first screen"
    assert page.locator("text=best so far").count() == 1
    sizes = page.evaluate(
        "[...document.querySelectorAll('.grid text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(sizes) > 9, "labels can be read"
    assert wrong == []
    page.close()


def test_infeasible_trials_are_counted_once(tmp_path: Path) -> None:
    """The report and the terminal count by the same outcomes; the studio does too."""
    record = record_of(write_sweep(tmp_path / "runs", constraints=["size <= 1000"]))
    counts = Standings.of(record.snapshot).counts()
    above = [t for t in record.trials if t.metrics.get("size", 0.0) > 1000]
    assert counts[INFEASIBLE] == len(above) > 0
    assert sum(counts.values()) == len(record.trials)
    words = f"{counts['completed']} completed, {len(above)} infeasible, "
    assert words in render(record)
    assert words in ", ".join(state_lines(record.snapshot, counts))
    for name in ("progress", "timeline"):
        (figure,) = draw(name, record, []).figures
        (infeasible,) = [trace for trace in figure["data"] if trace["name"] == INFEASIBLE]
        assert sorted(infeasible["customdata"]) == [trial.number for trial in above]


def test_of_many_points_overlapping_ones_are_drawn_once() -> None:
    points = [(i % 100 / 100, i // 100 / 100) for i in range(10_000)]
    rows = spread(points, 20, 10)
    assert 200 <= len(rows) <= 21 * 11
    assert spread(points[:20], 20, 10) == list(range(20))
    assert spread([(1.0, 2.0)] * 50, 20, 10) == [0]


def test_every_figure_is_valid_plotly(runs: str) -> None:
    record = record_of(runs)
    insights = insights_of(record)
    panels = [draw(name, record, insights) for name in ORDER]
    assert [panel.key for panel in panels] == list(ORDER)
    for panel in panels:
        assert panel.figures, panel.key
        for figure in panel.figures:
            go.Figure(figure)
            json.dumps(figure, allow_nan=False)


def test_effects_find_the_parameters_that_matter(runs: str) -> None:
    quality, speed, memory = insights_of(record_of(runs))
    assert (quality.model.metric, speed.model.metric) == ("loss", "seconds_per_update")
    assert memory.model.metric == "peak_memory_bytes"
    assert quality.effects[0].name == "lr"
    assert speed.effects[0].name == memory.effects[0].name == "batch_size"
    assert {effect.name for effect in speed.effects} == {"batch_size", "layout"}
    effect = speed.effects[0]
    assert effect.middle[-1] > 3 * effect.middle[0]
    assert (effect.low <= effect.middle).all()
    assert (effect.middle <= effect.high).all()


@pytest.mark.parametrize("num_trials", [0, 1, 2, 7])
def test_a_sweep_of_few_trials_has_a_page(tmp_path: Path, num_trials: int) -> None:
    store = write_sweep(tmp_path / "runs", num_trials)
    page = render(record_of(store))
    assert all(f'id="{key}"' in page for key in ORDER)


def test_a_result_saves_the_same_report_without_a_ledger(runs: str, tmp_path: Path) -> None:
    record = record_of(runs)
    Result(record.snapshot).save_report(tmp_path / "report.html")
    load("toy", runs).save_report(tmp_path / "stored.html")
    assert "abc123" in (tmp_path / "stored.html").read_text(), "the store knows more"
    assert f"in trial {record.snapshot.best.number}" in (tmp_path / "report.html").read_text()  # type: ignore[union-attr]


def test_the_best_configuration_runs_as_it_is(runs: str, tmp_path: Path) -> None:
    record = record_of(runs)
    best = record.snapshot.best
    assert best is not None
    file = tmp_path / "best.yaml"
    file.write_text(recipe(record.spec, best))
    spec = config.load(file, objective=True).spec
    assert spec.space.size == 1
    assert spec.goals == record.spec.goals
    assert spec.space.complete({}) == best.params


def test_wrong_usage(runs: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["report", "toi", "--store", runs])
    assert (done.exit_code, "did you mean 'toy'?" in done.output) == (2, True)
    done = CliRunner().invoke(
        cli, ["report", "toy", "--store", runs, "-o", str(tmp_path / "absent" / "x.html")]
    )
    assert (done.exit_code, "cannot be written" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []
