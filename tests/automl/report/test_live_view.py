"""What a person sees while a sweep runs and when it has ended."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from automl.core import text
from automl.core.budget import Budget
from automl.core.goals import Constraint, Goal
from automl.core.snapshot import Snapshot
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.report.live import PlainLines, render, view
from automl.report.summary import print_summary
from search_spaces import Choice, Float, Space

SPACE = Space(
    Float("learning_rate", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("precision", ["fp32", "bf16"], default="fp32"),
)
BLEU = Goal("bleu", maximize=True)


def trial(
    number: int, bleu: float | None, state: TrialState = TrialState.COMPLETED, **facts: object
) -> Trial:
    params = {"learning_rate": 1e-3 * (number + 1), "precision": "bf16" if number else "fp32"}
    metrics = {} if bleu is None else {"bleu": bleu, "peak_memory_bytes": 9.1e8}
    ended = 30.0 * (number + 1) if state.finished else None
    found = Trial(
        number,
        params,
        state,
        metrics,
        attempts=1,
        seconds=30.0,
        started=30.0 * number,
        ended=ended,
        source="" if number else "default",
    )
    return replace(found, **facts)  # type: ignore[arg-type]


def snapshot(*trials: Trial, state: str = "running", **facts: object) -> Snapshot:
    found = Snapshot(
        "nmt", state, trials, (BLEU,), budget=Budget(trials=12, time=480.0), seconds=100.0
    )
    return replace(
        found,
        num_slots=2,
        busy_slots=1,
        suggesting="2 ready",
        suggestion_seconds=[0.1, 0.3],
        **facts,
    )  # type: ignore[arg-type]


OUT_OF_MEMORY = trial(
    1, None, TrialState.FAILED, failure="out_of_memory", message="asked for 12 GB\nof 8 GB"
)
RUNNING = trial(3, None, TrialState.RUNNING, reports=(ReportPoint(120, {"bleu": 3.5}, 9.0),))
MIDDLE = snapshot(trial(0, 20.0), OUT_OF_MEMORY, trial(2, 23.5), RUNNING)


def drawn(shown: Snapshot, width: int, height: int = 24) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    out.print(render(shown, height))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_says_what_matters_and_fits(width: int) -> None:
    lines = drawn(MIDDLE, width)
    assert len(lines) <= 24
    assert all(len(line) <= width for line in lines)
    everything = "\n".join(lines)
    for words in (
        "nmt  running",
        "4 of 12 trials, 1m 40s of 8m 00s",
        "about 5m 00s left",
        "best  bleu 23.5  trial 2  +3.5 against the default",
        "step 120",
        "out of memory",
        "workers 1 of 2 busy   suggestions 2 ready, 0.2 s each",
        "1 running   2 completed   1 failed (1 out of memory)",
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


def test_a_sweep_that_has_only_begun_can_be_drawn() -> None:
    assert "no bleu yet" in "\n".join(drawn(snapshot(), 80))


def plain(*snapshots: Snapshot) -> list[str]:
    out = Console(file=io.StringIO(), width=200)
    show = PlainLines(out)
    for shown in snapshots:
        show(shown)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_without_a_terminal_each_change_is_a_line() -> None:
    first = snapshot(trial(0, None, TrialState.RUNNING), seconds=1.0)
    lines = plain(first, first, replace(MIDDLE, suggesting="fell back to sobol: no memory"))
    assert lines == [
        "[     1s] trial 0 running  learning_rate=0.001  precision=fp32",
        "[ 1m 40s] trial 0 completed  bleu 20  in 30s  best so far",
        "[ 1m 40s] trial 1 failed  out of memory  (asked for 12 GB)",
        "[ 1m 40s] trial 2 completed  bleu 23.5  in 30s  best so far",
        "[ 1m 40s] trial 3 running  learning_rate=0.004  precision=bf16",
        "[ 1m 40s] suggestions: fell back to sobol: no memory",
        "[ 1m 40s] 4 of 12 trials, 1m 40s of 8m 00s - 1 running - 2 completed - 1 failed (1 out of memory)",
    ]


def test_the_view_follows_whether_there_is_a_terminal() -> None:
    piped = Console(file=io.StringIO(), width=100)
    with view(piped) as show:
        show(MIDDLE)
    assert "\x1b" not in piped.file.getvalue()  # type: ignore[attr-defined]
    terminal = Console(
        file=io.StringIO(), width=100, height=24, force_terminal=True, color_system=None
    )
    with view(terminal) as show:
        show(MIDDLE)
        show(replace(MIDDLE, state="finished"))
    assert "best  bleu 23.5" in terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" in terminal.file.getvalue()  # type: ignore[attr-defined]


def summary(shown: Snapshot, options: str = "") -> str:
    out = Console(file=io.StringIO(), width=100)
    print_summary(out, shown, SPACE, options)
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_summary_compares_the_best_with_the_default() -> None:
    found = summary(replace(MIDDLE, state="finished", trials=MIDDLE.trials[:3]))
    assert "nmt finished: 3 trials in 1m 40s, 1 failed (1 out of memory)" in found
    assert "Best bleu: 23.5 in trial 2, +3.5 (+17.5%) against the default (20)." in found
    rows = {line.split()[0]: line.split()[1:] for line in found.splitlines() if line.strip()}
    assert rows["learning_rate"] == ["0.003", "0.001"]
    assert rows["bleu"] == ["23.5", "20", "+17.5%"]
    assert rows["peak_memory_bytes"] == ["910", "MB", "910", "MB"]
    assert "automl trials nmt" in found
    assert "automl best nmt --json" in found


def test_a_first_trial_that_was_suggested_is_not_called_the_default() -> None:
    found = summary(snapshot(trial(0, 20.0, source="bayes"), trial(1, 30.0), state="finished"))
    assert "+10 (+50.0%) against trial 0 (20)." in found
    assert "default" not in found


def test_an_interrupted_sweep_is_pointed_to_resume() -> None:
    found = summary(replace(MIDDLE, state="interrupted"), "--store 'my runs'")
    assert "automl resume nmt --store 'my runs'" in found


def test_a_default_that_nothing_beat_is_said_to_be_the_best() -> None:
    found = summary(snapshot(trial(0, 20.0), trial(1, 3.0), state="finished"))
    assert "Best bleu: 20 in trial 0, the default: no other trial was better." in found


def test_a_sweep_without_success_says_why() -> None:
    found = summary(snapshot(replace(OUT_OF_MEMORY, number=0), OUT_OF_MEMORY, state="finished"))
    assert "No trial has succeeded." in found
    assert "out of memory, trial 0: asked for 12 GB" in found
    assert "automl best" not in found


def test_a_sweep_in_which_nothing_keeps_to_the_constraints_says_so() -> None:
    shown = snapshot(
        trial(0, 20.0), state="finished", constraints=(Constraint("peak_memory_bytes", 1e6),)
    )
    assert "No trial has kept to peak_memory_bytes <= 1e+06." in summary(shown)


def test_a_best_value_at_the_edge_of_its_range_is_told() -> None:
    edge = trial(1, 30.0, params={"learning_rate": 0.099, "precision": "bf16"})
    assert "learning_rate=0.099 is at the edge of its range (0.1)" in summary(
        snapshot(trial(0, 20.0), edge, state="finished")
    )


def test_several_goals_show_the_pareto_front() -> None:
    goals = (BLEU, Goal("seconds"))
    one = trial(0, 20.0, metrics={"bleu": 20.0, "seconds": 5.0})
    two = trial(1, 25.0, metrics={"bleu": 25.0, "seconds": 9.0})
    worse = trial(2, 19.0, metrics={"bleu": 19.0, "seconds": 9.0})
    found = summary(snapshot(one, two, worse, state="finished", goals=goals))
    front = found[found.index("Pareto front: 2 configurations") :]
    assert [line.split()[0] for line in front.splitlines()[2:4]] == ["0", "1"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (90000, "1d 01h"),
    ],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.00012345, "0.000123"),
        (1e-7, "1e-7"),
        (0.0, "0"),
        (23.456, "23.46"),
        (12345.6, "12346"),
        (1e12, "1e12"),
    ],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert text.number(value) == expected


def test_a_sparkline_rises_as_the_goal_improves() -> None:
    assert text.sparkline([1.0, 2.0, 3.0], 10, maximize=True) == "▁▅█"
    assert text.sparkline([3.0, 2.0, 1.0], 10, maximize=False) == "▁▅█"
    assert text.sparkline([5.0], 10, maximize=True) == "▅"
    assert len(text.sparkline([float(i) for i in range(100)], 20, maximize=True)) == 20
    assert text.sparkline([], 10, maximize=True) == ""


def test_the_best_so_far_follows_the_order_of_ends() -> None:
    late = trial(0, 20.0, ended=99.0)
    assert text.best_so_far(snapshot(late, trial(1, 10.0), trial(2, 15.0), OUT_OF_MEMORY)) == [
        10.0,
        10.0,
        15.0,
        20.0,
    ]
