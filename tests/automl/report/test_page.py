"""The report, written from a ledger and opened in a real browser, whatever the ledger holds."""

from contextlib import closing
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner
from report_snapshots import snapshot, trial
from report_sweeps import write_sweep

from automl import config
from automl.cli import cli
from automl.core import Goal, Snapshot, TrialState
from automl.errors import AutomlError, UsageError
from automl.integrations.optuna_view import FIGURES
from automl.ledger import Ledger
from automl.report.page import data_of, save
from automl.report.recommendation import recipe
from automl.report.record import Record
from automl.report.summary import print_summary
from automl.report.sweep_data import web_pages
from automl.report.terminal import SweepView, console
from automl.result import Result
from automl.sweeps import load

CONTROLS = "\x1b]0;owned\x07\x9b31m\u202e"
CODE = "</script><script>console.error('it ran')</script>"
LOSSES = ([5e15, 5e15 + 1] * 4, [1e308, -1e308, 0.0, 1.0, 2.0, 3.0], [5e-324, 0.0, -5e-324, 1e-300])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the sweep `toy` of one goal, and `toy-2` of two."""
    folder = tmp_path_factory.mktemp("runs")
    write_sweep(folder)
    return write_sweep(folder, goals=["minimize loss", "minimize size"])


def record_of(store: str, name: str = "toy") -> Record:
    with closing(Ledger.open(store, readonly=True)) as ledger:
        return Record.read(ledger, name)


def opened(chromium: Any, path: Path) -> tuple[Any, list[str]]:
    """The page once it is drawn, and everything that went wrong."""
    page, wrong = chromium.new_page(viewport={"width": 1200, "height": 900}), []
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    own = ("file:", "data:", "blob:")
    page.on("request", lambda one: None if one.url.startswith(own) else wrong.append(one.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready], iframe", timeout=60_000)
    return page, wrong


@pytest.mark.parametrize("name", ["toy", "toy-2"])
def test_the_page_in_a_browser(chromium: Any, tmp_path: Path, runs: str, name: str) -> None:
    file = tmp_path / "toy.html"
    done = CliRunner().invoke(cli, ["report", name, "--store", runs, "-o", str(file)])
    assert done.exit_code == 0, done.output
    page, wrong = opened(chromium, file)
    assert page.inner_text("h1") == name
    assert page.locator(".progressed .points").count() > 0
    fronts = len(record_of(runs, name).snapshot.pareto) if name == "toy-2" else 0
    assert page.locator(".frontier tbody tr:not(:has-text('not on the front'))").count() == fronts
    assert "asked for 9 GB" in page.inner_text(".part-failures")
    page.click("#setup summary")
    setup = page.inner_text("#setup")
    assert "<b>packed" in setup
    assert "abc123" in setup
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
    page.close()


def test_only_parameters_that_are_active_are_shown_together(runs: str) -> None:
    shown = data_of(record_of(runs))["page"]["answer"]
    names = {row["name"] for row in shown["rows"]}
    assert names == set(shown["params"])
    assert ("momentum" in names) == (shown["params"]["optimizer"] == "sgd")


def test_a_notebook_shows_the_page_in_a_frame(chromium: Any, runs: str, tmp_path: Path) -> None:
    html = load("toy", runs)._repr_html_()
    assert len(html) < 300_000
    file = tmp_path / "cell.html"
    file.write_text(f"<!doctype html><title>cell</title>{html}", encoding="utf-8")
    page, wrong = opened(chromium, file)
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for(timeout=60_000)
    frame.locator(".trials a[data-trial] >> nth=0").click()
    frame.locator(".trial h2").wait_for()
    assert wrong == []
    page.close()


def test_every_figure_is_one_of_plotly(runs: str) -> None:
    result = load("toy", runs)
    for name in sorted({*FIGURES} - {"pareto"}):
        assert isinstance(result.figure(name), go.Figure)
    for name in ("", "loss"):
        with pytest.raises(UsageError, match="the figures are progress, parallel, pareto"):
            result.figure(name)


def test_the_best_configuration_runs_as_it_is(runs: str, tmp_path: Path) -> None:
    record = record_of(runs)
    best = record.snapshot.best
    assert best is not None
    file = tmp_path / "best.yaml"
    file.write_text(recipe(record.spec, best))
    spec = config.load(file, objective=True).spec
    assert (spec.space.size, spec.goals) == (1, record.spec.goals)
    assert spec.space.complete({}) == best.params


def test_wrong_usage(runs: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["report", "toi", "--store", runs])
    assert (done.exit_code, "did you mean 'toy" in done.output) == (2, True)
    for place in (tmp_path / "absent" / "x.html", tmp_path):
        with pytest.raises(UsageError, match="cannot be written"):
            save(Record.of(snapshot(trial(0, 1.0))), place)
    assert list(tmp_path.iterdir()) == []


def in_terminal(shown: Snapshot) -> str:
    out = console(width=100)
    with out.capture() as terminal:
        out.print(SweepView(shown, 30))
        print_summary(out, shown)
    return terminal.get()


@pytest.mark.parametrize("losses", LOSSES)
def test_extreme_losses_are_shown(tmp_path: Path, chromium: Any, losses: list[float]) -> None:
    trials = [trial(number, None, metrics={"loss": loss}) for number, loss in enumerate(losses)]
    shown = snapshot(*trials, state="finished", goals=(Goal("loss"),))
    assert "Recommended: trial" in in_terminal(shown)
    save(Record.of(shown), tmp_path / "page.html")
    page, wrong = opened(chromium, tmp_path / "page.html")
    assert page.inner_text(".headline").startswith("Recommended: trial")
    assert wrong == []
    page.close()


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "\x1b[2J", "[bad"])
def test_only_web_pages_are_linked(address: str) -> None:
    assert web_pages(address) == {}
    assert web_pages("https://h:1")["cluster"] == "https://h:1/#/cluster"


def test_no_text_of_a_sweep_is_obeyed(tmp_path: Path, chromium: Any) -> None:
    """Neither the terminal nor the browser does what names, values and messages say."""
    params = {"learning_rate": 1e-3, "precision": f"a\nb{CONTROLS}{CODE}"}
    details = {"traceback": f"Traceback\n  x{CONTROLS}\nError\n"}
    facts = {"failure": "crashed", "message": CONTROLS + CODE, "details": details}
    failed = trial(1, None, TrialState.FAILED, params=params, **facts)
    one = trial(0, 20.0, params=params, metrics={"bleu": 20.0, f"{CONTROLS}{CODE}": 1.0})
    shown = snapshot(one, failed, state="finished")
    text = in_terminal(shown)
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert r"a\nb\u001b]0;owned\u0007\u009b31m\u202e" in text
    with pytest.raises(AutomlError) as error:
        _ = Result(snapshot(failed)).best
    assert r"  x\u001b]0;owned\u0007\u009b31m\u202e" in str(error.value).splitlines()
    save(Record.of(shown), tmp_path / "page.html")
    page, wrong = opened(chromium, tmp_path / "page.html")
    assert wrong == []
    assert CODE in page.inner_text(".part-failures")
    page.close()
