"""Whatever is legal in a ledger can be shown: extreme numbers, names that are code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_snapshots import snapshot, trial
from test_page import opened

from automl.core.goals import Goal
from automl.core.state import Snapshot
from automl.core.trial import TrialState
from automl.errors import AutomlError, UsageError
from automl.report.console import console
from automl.report.page import save
from automl.report.record import Record
from automl.report.summary import print_summary
from automl.report.sweep_data import web_pages
from automl.report.terminal_view import SweepView
from automl.result import Result

LOSS = Goal("loss")
CONTROLS = "\x1b]0;owned\x07\x9b31m\u202e"
CODE = "</script><script>console.error('it ran')</script>"
LOSSES = ([5e15, 5e15 + 1] * 4, [1e308, -1e308, 0.0, 1.0, 2.0, 3.0], [5e-324, 0.0, -5e-324, 1e-300])


def losing(*losses: float) -> Snapshot:
    """A finished sweep with these losses."""
    trials = [trial(number, None, metrics={"loss": loss}) for number, loss in enumerate(losses)]
    return snapshot(*trials, state="finished", goals=(LOSS,))


def in_terminal(shown: Snapshot) -> str:
    out = console(width=100)
    with out.capture() as terminal:
        out.print(SweepView(shown, 30))
        print_summary(out, shown, Record.of(shown).space)
    return terminal.get()


@pytest.mark.parametrize("losses", LOSSES)
def test_extreme_losses_are_shown(tmp_path: Path, chromium: Any, losses: list[float]) -> None:
    shown = losing(*losses)
    assert "Recommended: trial" in in_terminal(shown)
    save(Record.of(shown), tmp_path / "page.html")
    page, wrong = opened(chromium, tmp_path / "page.html")
    assert page.inner_text(".headline").startswith("Recommended: trial")
    assert wrong == []
    page.context.close()


def test_a_folder_is_no_place_for_a_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        save(Record.of(losing(1.0)), tmp_path)
    assert list(tmp_path.iterdir()) == []


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
    page.context.close()
