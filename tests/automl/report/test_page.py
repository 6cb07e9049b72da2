"""The report, written from a ledger and opened in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner
from report_sweeps import write_sweep

from automl import config
from automl.cli import cli
from automl.integrations.optuna_view import FIGURES
from automl.ledger import Ledger
from automl.report.page import data_of
from automl.report.recipe import recipe
from automl.report.record import Record
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


def opened(chromium: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page once it is drawn, and everything that went wrong."""
    context = chromium.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
    page, wrong = context.new_page(), []
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith("file:") else wrong.append(request.url),
    )
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    return page, [text for text in wrong if not text.startswith(("data:", "blob:"))]


@pytest.mark.parametrize("goals", ["minimize loss", ["minimize loss", "minimize size"]])
def test_the_page_in_a_browser(chromium: Any, tmp_path: Path, goals: Any) -> None:
    store = write_sweep(tmp_path / "runs", goals=goals)
    file = tmp_path / "toy.html"
    done = CliRunner().invoke(cli, ["report", "toy", "--store", store, "-o", str(file)])
    assert done.exit_code == 0, done.output
    page, wrong = opened(chromium, file)
    record = record_of(store)
    assert page.inner_text("h1") == "toy"
    assert page.locator(".progressed .points").count() > 0
    fronts = len(record.snapshot.pareto) if isinstance(goals, list) else 0
    assert page.locator(".frontier tbody tr:not(:has-text('not on the front'))").count() == fronts
    assert "asked for 9 GB" in page.inner_text(".part-failures")
    page.click("#setup summary")
    assert "<b>packed" in page.inner_text("#setup")
    assert "abc123" in page.inner_text("#setup")
    page.click("details.panel summary >> text=Explore")
    page.wait_for_selector(".strand", state="attached")
    page.click(".trials a[data-trial] >> nth=0")
    assert page.locator(".trial .plot path.line").count() > 1, "its curve is among the others"
    assert "parameter" in page.inner_text(".trial .compare")
    for width in (1900, 700, 375):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert wrong == []
    assert file.stat().st_size < 300_000
    page.context.close()


def test_only_parameters_that_are_active_are_shown_together(runs: str) -> None:
    record = record_of(runs)
    shown = data_of(record)["page"]["answer"]
    names = {row["name"] for row in shown["rows"]}
    assert names == set(shown["params"])
    assert ("momentum" in names) == (shown["params"]["optimizer"] == "sgd")


def test_a_notebook_shows_the_page_in_a_frame(chromium: Any, runs: str, tmp_path: Path) -> None:
    html = load("toy", runs)._repr_html_()
    assert len(html) < 300_000
    file = tmp_path / "cell.html"
    file.write_text(f"<!doctype html><title>cell</title>{html}", encoding="utf-8")
    page = chromium.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for(timeout=60_000)
    frame.locator(".trials a[data-trial] >> nth=0").click()
    frame.locator(".trial h2").wait_for()
    assert wrong == []
    page.close()


@pytest.mark.parametrize("name", sorted({*FIGURES} - {"pareto"}))
def test_every_figure_is_one_of_plotly(runs: str, name: str) -> None:
    assert isinstance(load("toy", runs).figure(name), go.Figure)


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
