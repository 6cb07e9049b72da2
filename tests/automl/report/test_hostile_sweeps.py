"""Whatever is legal in a ledger can be shown: extreme numbers, hostile names, empty sweeps."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import Any

import hostile_sweeps
import pytest
from report_snapshots import snapshot, trial

from automl.core.goals import Goal
from automl.core.reports import ReportPoint
from automl.core.trial import TrialState
from automl.errors import AutomlError, UsageError
from automl.report.page import data_of, save
from automl.report.record import Record
from automl.report.sweep_data import web_pages
from automl.result import Result

LOSS = Goal("loss")


def sweep(losses: list[float], curves: Any = (), **facts: Any) -> Record:
    """A finished sweep with these losses; `curves` are the reported losses of the first trials."""
    trials = []
    for number, loss in enumerate(losses):
        curve = curves[number] if number < len(curves) else ()
        reports = tuple(
            ReportPoint(step, {"loss": value}, float(step), 1, step)
            for step, value in enumerate(curve, 1)
        )
        one = trial(number, None, TrialState.COMPLETED, metrics={"loss": loss}, reports=reports)
        trials.append(one)
    return Record.of(snapshot(*trials, state="finished", goals=(LOSS,), **facts))


@pytest.mark.parametrize("seed", range(12))
def test_a_legal_sweep_is_shown(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert hostile_sweeps.wrong(hostile_sweeps.record(seed)) == []


@pytest.mark.parametrize(
    "losses",
    [
        [5e15] * 8,
        [5e15, 5e15 + 1, 5e15 + 2] * 3,
        [1e308, -1e308, 0.0, 1.0, 1.7976931348623157e308, 2.0, 3.0, 4.0],
        [5e-324, 0.0, 5e-324, -5e-324, 5e-324, 0.0, 1e-300],
        [1e308],
    ],
)
def test_extreme_losses_are_shown(losses: list[float]) -> None:
    assert hostile_sweeps.wrong(sweep(losses)) == []


def test_thousands_of_hostile_trials_are_shown() -> None:
    """The page without a model, and the terminal; models are fitted to small sweeps above."""
    found = hostile_sweeps.record(3, count=2000)
    assert len(data_of(found, modelled=False)["table"]["rows"]) == 2000
    hostile_sweeps.terminal_text(found)


@pytest.mark.parametrize("name", [".", "..", ""])
def test_a_folder_is_no_place_for_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    with pytest.raises(UsageError, match="cannot be written"):
        save(sweep([1.0]), name)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs"]


def test_a_report_follows_the_umask_and_leaves_no_draft(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        save(sweep([1.0]), tmp_path / "private.html")
        os.umask(0o022)
        save(sweep([1.0]), tmp_path / "shared.html")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"private.html": 0o600, "shared.html": 0o644}


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "data:text/html,x", "\x1b[2J", "", "http:x", "[bad", "//[bad"],
)
def test_only_web_pages_are_linked(address: str) -> None:
    assert web_pages(address) == {}
    assert web_pages("https://h:1")["cluster"] == "https://h:1/#/cluster"
    assert web_pages("http://[bad")["cluster"] == "http://[bad/#/cluster"


def test_control_characters_do_not_reach_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\u202e"
    params = {"learning_rate": 1e-3, "precision": f"a\nb{hostile}"}
    failed = trial(
        1,
        None,
        TrialState.FAILED,
        failure="crashed",
        message=hostile,
        params=params,
        details={"traceback": f"Traceback\n  x{hostile}\nError\n"},
    )
    one = trial(0, 20.0, params=params, metrics={"bleu": 20.0, f"{hostile}\ud800": 1.0})
    finished, running = (snapshot(one, failed, state=state) for state in ("finished", "running"))
    for shown in (Record.of(finished), Record.of(running)):
        text = hostile_sweeps.terminal_text(shown)
        assert not set(hostile_sweeps.HOSTILE) & set(text)
        assert r"a\nb\u001b]0;owned\u0007\u009b31m\u202e" in text
    assert not set(hostile_sweeps.HOSTILE) & set(repr(failed))
    with pytest.raises(AutomlError) as error:
        _ = Result(snapshot(failed)).best
    assert not set(hostile_sweeps.HOSTILE) & set(str(error.value))
    assert r"  x\u001b]0;owned\u0007\u009b31m\u202e" in str(error.value).splitlines()
