"""What the terminal shows: the view of a running sweep, lines without a terminal, the summary."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_snapshots import BLEU, MIDDLE, ended, snapshot, trial
from rich.console import Console

import automl
from automl.core import Begun, Budget, Goal, Snapshot, TrialState
from automl.core.text import Typed
from automl.report.summary import NOTHING, print_summary
from automl.report.terminal import PlainLines, SweepView
from workers.protocol import Cause


def printed(width: int, draw: Callable[[Console], Any], **options: Any) -> str:
    out = Console(file=io.StringIO(), width=width, **options)
    draw(out)
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def drawn(shown: Snapshot, width: int) -> list[str]:
    terminal: Any = {"force_terminal": True, "color_system": None}
    return printed(width, lambda out: out.print(SweepView(shown, 24)), **terminal).splitlines()


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
    lost = "\n".join(drawn(replace(MIDDLE, state="interrupted"), width))
    assert [lost.count(w) for w in ("automl resume nmt", "running", " interrupted")] == [1, 0, 3]


def test_many_trials_and_long_configurations_are_cut_to_the_screen() -> None:
    long = trial(0, 0.5, params={f"parameter_{i}": 0.123456789 for i in range(30)})
    lines = drawn(snapshot(*(replace(long, number=number) for number in range(200))), 80)
    assert (len(lines), max(map(len, lines))) == (24, 80)


def test_without_a_terminal_each_change_is_a_line() -> None:
    first = snapshot(trial(0, None, TrialState.RUNNING), seconds=1.0)
    first = replace(first, events=[Begun(0, 1, 1.0)])
    events = [*map(ended, MIDDLE.trials[:3]), Begun(3, 1, 90.0)]
    shown = (first, replace(first, events=()), replace(MIDDLE, events=events))
    assert printed(200, lambda out: list(map(PlainLines(out), shown))).splitlines() == [
        "[     1s] trial 0 running  learning_rate=0.001  precision=fp32",
        "[ 1m 40s] trial 0 completed  bleu 20  in 30s",
        "[ 1m 40s] trial 1 failed  out of memory  (asked for 12 GB)",
        "[ 1m 40s] trial 2 completed  bleu 23.5  in 30s  best so far",
        "[ 1m 40s] trial 3 running  learning_rate=0.004  precision=bf16",
        "[ 1m 40s] 3 of 12 trials done, 1m 40s of 8m 00s - 1 running - 2 completed"
        " - 1 failed (1 out of memory)",
    ]


def test_a_sweep_of_python_has_a_line_for_each_trial_or_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def objective(trial: Any) -> float:
        if trial.params["x"] == 2:
            raise ValueError("two is wrong")
        return float(trial.params["x"])

    given: Any = {"trials": 3, "suggester": "random", "dispatcher": "inline", "store": tmp_path}
    automl.sweep(objective, {"x": [3, 2, 1]}, "minimize loss", **given)
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("[")]
    assert (out, len(lines)) == ("", 3)
    for value in (1, 3):
        assert any(f"completed  loss {value}" in line and f"x={value}" in line for line in lines)
    assert any("failed  crashed  (ValueError: two is wrong)  x=2" in line for line in lines)
    automl.sweep(objective, {"x": [3, 2, 1]}, "minimize loss", progress=False, **given)
    assert capsys.readouterr() == ("", "")


def summary(shown: Snapshot, typed: Typed = NOTHING) -> str:
    return printed(100, lambda out: print_summary(out, shown, typed))


def test_the_summary_compares_the_best_with_the_default() -> None:
    found = summary(replace(MIDDLE, state="finished", trials=MIDDLE.trials[:3]))
    for line in (
        "nmt finished: 3 trials in 1m 40s, 1 failed (1 out of memory)",
        "Recommended: trial 2, bleu 23.5",
        "The default: 20; the change is +17.5%.",
        "Not known yet: how sure this is and which parameters matter",
        "1 out of memory: asked for 12 GB (trial 1)",
        "automl trials nmt",
        "automl best nmt",
    ):
        assert line in found
    rows = {line.split()[0]: line.split()[1:] for line in found.splitlines() if line.strip()}
    assert rows["learning_rate"][0] == "0.003"
    assert rows["learning_rate"][-2:] == ["default", "0.001"]
    assert rows["bleu"] == ["23.5", "20"]
    assert rows["peak_memory_bytes"] == ["910", "MB", "910", "MB"]
    resumed = summary(replace(MIDDLE, state="interrupted"), Typed("my runs"))
    assert "automl resume nmt --store 'my runs'" in resumed


def test_the_cause_of_a_sweep_without_a_success_is_said_once() -> None:
    failed = [
        trial(number, None, TrialState.FAILED, failure="crashed", message="no such file")
        for number in range(3)
    ]
    reason = "3 trials failed alike and none succeeded: no such file. Mend the program"
    cut_off = trial(3, None, TrialState.STOPPED)  # it ran when the sweep ended
    budget = Budget(trials=6)
    shown = replace(snapshot(*failed, cut_off, state="finished"), reason=reason, budget=budget)
    found = summary(shown)
    assert found.count("no such file") == 1
    assert "(3 trials failed alike and none succeeded): 4 of 6 trials" in found
    assert "3 of 4 trials failed, 3 of them alike" in found
    killed = "the command was killed by signal 9 (SIGKILL) from outside (after 2 retries)"
    deaths = [
        replace(one, failure="preempted", message=killed, cause=Cause.KILLED) for one in failed
    ]
    assert "Who kills it?" in summary(replace(shown, trials=[*deaths, cut_off]))


def test_several_goals_show_the_pareto_front() -> None:
    values = [(20.0, 5.0), (25.0, 12.0), (25.0, 9.0), (19.0, 9.0)]
    trials = [trial(i, a, metrics={"bleu": a, "seconds": b}) for i, (a, b) in enumerate(values)]
    shown = snapshot(*trials, state="finished", goals=(BLEU, Goal("seconds")))
    found, best = summary(shown), shown.best
    front = found[found.index("front of 2") :]
    assert [line.split()[0] for line in front.splitlines()[1:3]] == ["2", "0"]
    assert best is trials[2], "of equals, the one on the front"
    assert front.splitlines()[2].split()[1] == "default"
