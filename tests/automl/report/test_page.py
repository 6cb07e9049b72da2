"""The report, written from a ledger and opened in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from click.testing import CliRunner
from report_sweeps import SPACE, write_sweep

import automl
from automl import config
from automl.cli import cli
from automl.core.text import number as text_number
from automl.core.trial import TrialState
from automl.ledger import Ledger
from automl.report.conclusion import certainty, predicted
from automl.report.effects import insights_of
from automl.report.figures import ORDER, draw
from automl.report.page import render
from automl.report.plotting import spread
from automl.report.recipe import recipe
from automl.report.record import Record
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
        ".map(f => [f.id, f.querySelectorAll('.main-svg').length > 0, f.data.length])"
    )
    assert {key.rsplit("-", 1)[0] for key, _, _ in figures} == set(ORDER)
    assert all(drawn and traces for _, drawn, traces in figures)
    assert len([key for key, _, _ in figures if key.startswith("pareto")]) == num_fronts
    assert (
        page.evaluate("document.querySelectorAll('.parcoords-line-layer, .gl-canvas').length") > 0
    )
    assert "WebGL" not in page.inner_text("#parallel")
    assert page.inner_text("h1") == "toy"
    assert "<b>packed" in page.inner_text("#setup")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    page.close()


def test_the_page_shows_results_warnings_and_setup(runs: str) -> None:
    record = record_of(runs)
    page = render(record)
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    best = record.snapshot.best
    assert best is not None
    assert f"in trial {best.number}" in text
    assert "with 90% probability it is between" in text
    assert "a fallback replaced the suggester once: the suggester" in text
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
    assert predicted(record, insights[0].model, best)[2] <= worst * (1 + 1e-6)


def test_the_first_chart_needs_no_script(runs: str) -> None:
    record = record_of(runs)
    page = render(record)
    head = page[: page.index("<script")]
    picture = re.search(r'<svg class="static-chart".*?</svg>', head, flags=re.DOTALL)
    assert picture is not None
    assert re.search(r">sweep time \((minutes|seconds)\)<", picture[0])
    best = record.snapshot.best
    assert best is not None
    assert f"best loss so far: {text_number(record.value(best))}" in picture[0]
    assert picture[0].count("<circle") == len(record.scored()) + 1, "one is of the legend"
    failed = len(record.snapshot.in_state(TrialState.FAILED))
    assert picture[0].count("l6,6") == failed + 1


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
