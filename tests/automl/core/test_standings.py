"""The outcomes of the trials of a sweep, and its best value over time."""

from automl.core import Goal, Snapshot, Trial, TrialState, parse_constraints
from automl.core.state import INFEASIBLE


def test_an_ended_trial_that_violates_a_constraint_is_infeasible() -> None:
    states = [TrialState.COMPLETED, TrialState.STOPPED, TrialState.FAILED, TrialState.RUNNING]
    trials = [
        Trial(number, {}, state, {"loss": 1.0, "size": size})
        for number, (state, size) in enumerate((state, s) for state in states for s in (9.0, 12.0))
    ]
    shown = Snapshot("s", "running", trials, (Goal("loss"),), parse_constraints("size <= 10"))
    kept = {"completed": 1, "stopped": 1, "failed": 2, "running": 2}
    assert shown.counts() == {INFEASIBLE: 2, **kept}
    assert (shown.best and shown.best.number) == 0


def test_the_best_so_far_follows_the_order_of_ends() -> None:
    trials = [
        Trial(number, {}, TrialState.COMPLETED, {"bleu": bleu}, ended=at)
        for number, (bleu, at) in enumerate([(20.0, 99.0), (10.0, 60.0), (15.0, 90.0)])
    ]
    shown = Snapshot("s", "running", trials, (Goal("bleu", maximize=True),))
    assert shown.trajectory() == [10.0, 15.0, 20.0]
