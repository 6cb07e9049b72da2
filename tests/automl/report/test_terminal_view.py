"""The terminal view of a running sweep."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from report_snapshots import MIDDLE, ended, snapshot, trial
from rich.console import Console

from automl.core import Begun
from automl.core.state import Snapshot
from automl.core.trial import TrialState
from automl.report.terminal_view import PlainLines, SweepView


def drawn(shown: Snapshot, width: int, height: int = 24) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    out.print(SweepView(shown, height))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_says_what_matters_and_fits(width: int) -> None:
    lines = drawn(MIDDLE, width)
    assert len(lines) <= 24
    assert all(len(line) <= width for line in lines)
    everything = "\n".join(lines)
    for words in (
        "nmt  running",
        "3 of 12 trials done, 1m 40s of 8m 00s",
        "about 5m 00s left",
        "best  bleu 23.5  trial 2",
        "step 120",
        "out of memory",
        "workers 1 of 2 busy   suggestions 2 ready, 0.2 s each",
        "1 running   2 completed   1 failed (1 out of memory)",
        "changed from the default",
        "the default",
    ):
        assert words in everything
    running = next(line for line in lines if "step 120" in line)
    assert running.split()[:5] == ["3", "step", "120", "3.5", "10s"]


def test_many_trials_and_long_configurations_are_cut_to_the_screen() -> None:
    params = {f"parameter_{i}": 0.123456789 for i in range(30)}
    trials = [trial(i, float(i), params=params) for i in range(200)]
    lines = drawn(snapshot(*trials), 80)
    assert len(lines) == 24
    assert max(map(len, lines)) == 80


def plain(*snapshots: Snapshot) -> list[str]:
    out = Console(file=io.StringIO(), width=200)
    show = PlainLines(out)
    for shown in snapshots:
        show(shown)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_without_a_terminal_each_change_is_a_line() -> None:
    first = snapshot(trial(0, None, TrialState.RUNNING), seconds=1.0)
    first = replace(first, events=[Begun(0, 1, 1.0)])
    events = [*map(ended, MIDDLE.trials[:3]), Begun(3, 1, 90.0)]
    lines = plain(first, replace(first, events=()), replace(MIDDLE, events=events))
    assert lines == [
        "[     1s] trial 0 running  learning_rate=0.001  precision=fp32",
        "[ 1m 40s] trial 0 completed  bleu 20  in 30s",
        "[ 1m 40s] trial 1 failed  out of memory  (asked for 12 GB)",
        "[ 1m 40s] trial 2 completed  bleu 23.5  in 30s  best so far",
        "[ 1m 40s] trial 3 running  learning_rate=0.004  precision=bf16",
        "[ 1m 40s] 3 of 12 trials done, 1m 40s of 8m 00s - 1 running - 2 completed"
        " - 1 failed (1 out of memory)",
    ]
