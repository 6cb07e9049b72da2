"""The summary in the terminal after a sweep."""

from __future__ import annotations

import io
from dataclasses import replace

from report_snapshots import BLEU, MIDDLE, SPACE, snapshot, trial
from rich.console import Console

from automl.core.goals import Goal
from automl.core.resources import Budget
from automl.core.state import Snapshot
from automl.core.text import Typed
from automl.core.trial import TrialState
from automl.report.summary import NOTHING, print_summary
from workers.protocol import Cause


def summary(shown: Snapshot, typed: Typed = NOTHING) -> str:
    out = Console(file=io.StringIO(), width=100)
    print_summary(out, shown, SPACE, typed)
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_summary_compares_the_best_with_the_default() -> None:
    found = summary(replace(MIDDLE, state="finished", trials=MIDDLE.trials[:3]))
    assert "nmt finished: 3 trials in 1m 40s, 1 failed (1 out of memory)" in found
    assert "Recommended: trial 2, bleu 23.5" in found
    assert "The default: 20; the change is +17.5%." in found
    assert "Not known yet: how sure this is and which parameters matter" in found
    assert "1 out of memory: asked for 12 GB (trial 1)" in found
    rows = {line.split()[0]: line.split()[1:] for line in found.splitlines() if line.strip()}
    assert rows["learning_rate"][0] == "0.003"
    assert rows["learning_rate"][-2:] == ["default", "0.001"]
    assert rows["bleu"] == ["23.5", "20"]
    assert rows["peak_memory_bytes"] == ["910", "MB", "910", "MB"]
    assert "automl trials nmt" in found
    assert "automl best nmt" in found


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


def test_an_interrupted_sweep_is_pointed_to_resume() -> None:
    found = summary(replace(MIDDLE, state="interrupted"), Typed("my runs"))
    assert "automl resume nmt --store 'my runs'" in found


def test_several_goals_show_the_pareto_front() -> None:
    goals = (BLEU, Goal("seconds"))
    one = trial(0, 20.0, metrics={"bleu": 20.0, "seconds": 5.0})
    two = trial(1, 25.0, metrics={"bleu": 25.0, "seconds": 9.0})
    worse = trial(2, 19.0, metrics={"bleu": 19.0, "seconds": 9.0})
    found = summary(snapshot(one, two, worse, state="finished", goals=goals))
    front = found[found.index("front of 2") :]
    assert [line.split()[0] for line in front.splitlines()[1:3]] == ["1", "0"]
    assert front.splitlines()[2].split()[1] == "default"
