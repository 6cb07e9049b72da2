from __future__ import annotations

import math

from automl.core import ReportPoint, Trial, TrialState, parse_constraints, parse_goals, ranking

DONE = TrialState.COMPLETED


def trial(
    number: int, state: TrialState = DONE, reports: tuple[float, ...] = (), **metrics: float
) -> Trial:
    points = tuple(ReportPoint(i, {"loss": loss}, float(i), 1, i) for i, loss in enumerate(reports))
    return Trial(number, {"lr": 0.1}, state, metrics, reports=points)


def test_a_goal_takes_the_best_report_unless_the_end_counts() -> None:
    best, end = parse_goals("minimize loss")[0], parse_goals("minimize loss at the end")[0]
    overfitted = trial(0, reports=(3.0, 1.0, 2.0), loss=2.0)
    assert (ranking.value(overfitted, best), ranking.value(overfitted, end)) == (1.0, 2.0)
    running = trial(1, TrialState.RUNNING, (3.0,), loss=3.0)
    assert (ranking.value(running, best), ranking.value(running, end)) == (3.0, None)


def test_the_seconds_of_a_trial_that_goes_on_are_no_value() -> None:
    (goal,) = parse_goals("minimize seconds")
    paused = [trial(0, TrialState.PAUSED, seconds=1.0), trial(1, TrialState.INTERRUPTED, seconds=1)]
    assert [ranking.value(one, goal) for one in paused] == [None, None]
    assert ranking.value(trial(2, seconds=3.0), goal) == 3.0


def test_failed_trials_and_values_that_are_not_finite_do_not_rank() -> None:
    (goal,) = parse_goals("maximize bleu")
    assert ranking.value(trial(0, TrialState.FAILED, bleu=9.0), goal) is None
    assert ranking.value(trial(0, bleu=math.inf), goal) is None
    assert ranking.value(trial(0, loss=1.0), goal) is None


def test_the_best_satisfies_the_constraints_and_is_the_earlier_of_equals() -> None:
    goals, constraints = parse_goals("minimize loss"), parse_constraints("size <= 5")
    trials = [
        trial(0, loss=1.0, size=9.0),
        trial(1, loss=2.0, size=5.0),
        trial(2, loss=2.0, size=1.0),
        trial(3, loss=0.1),
    ]
    assert ranking.best(trials, goals, constraints) is trials[1]
    smaller = [*goals, *parse_goals("minimize size")]
    assert ranking.best(trials, smaller, constraints) is trials[2], "the next goal decides first"
    assert ranking.best(trials[:1], goals, constraints) is None


def test_equal_trials_share_the_pareto_front() -> None:
    goals = parse_goals(["minimize loss", "maximize bleu"])
    values = [(1.0, 1.0), (0.5, 0.5), (1.0, 0.9), (1.0, 1.0), (2.0, 3.0)]
    trials = [trial(number, loss=loss, bleu=bleu) for number, (loss, bleu) in enumerate(values)]
    assert [found.number for found in ranking.pareto(trials, goals)] == [0, 1, 3, 4]
