"""Every stopping rule of the folder, then the levels and options of ASHA, and the warm-up."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.control.controller import conduct
from automl.core import Budget, ReportPoint, SweepSpec, Trial, TrialState, parse_goals
from automl.dispatch.simulated import SimulatedDispatcher
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.stopping.base import Decision, Stopper
from automl.sweeps import Simulation
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0, default=0.9), Float("y", 0.0, 1.0, default=0.5))
STEPS, FLAT = 27, 14
Replay = Iterator[tuple[float, dict[str, float]]]


def end_of(params: Any) -> float:
    return float((params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2)


def curve(params: Any) -> Replay:
    """A loss that falls to its end, an accuracy that rises, and a size that does not change."""
    for step in range(1, STEPS + 1):
        loss, size = end_of(params) + 1.0 / step, params["y"]
        yield 1.0 + size, {"loss": loss, "accuracy": 1.0 / (1.0 + loss), "size": size}


def flat(params: Any) -> Replay:
    """Until step `FLAT` the ranking is the reverse of the final one."""
    end = end_of(params)
    for step in range(1, STEPS + 1):
        yield 1.0, {"loss": 5.0 - 0.001 * end if step <= FLAT else end + 1.0 / (step - FLAT)}


def rising(params: Any) -> Replay:
    for (seconds, metrics), step in zip(flat(params), range(1, STEPS + 1), strict=True):
        yield seconds, {"loss": metrics["loss"] + (0.1 * step if step <= FLAT else 0.0)}


def simulate(
    stopper: str, goals: Any = "minimize loss", replay: Any = curve, **options: Any
) -> Simulation:
    """Trials of four workers on a virtual clock."""
    defaults: dict[str, Any] = {"workers": 4, "trials": 24, "suggester": "random", "seed": 3}
    return automl.simulate(replay, SPACE, goals, stopper=stopper, **{**defaults, **options})


def steps(result: Simulation) -> int:
    """How many steps all trials made together."""
    return sum(len(trial.reports) for trial in result.trials)


STOPPING = sorted(set(STOPPERS.names()) - {"none"})
GOALS: list[tuple[Any, dict[str, Any]]] = [
    ("minimize loss", {}),
    ("maximize accuracy", {}),
    ("minimize loss", {"constraints": "size <= 0.4"}),
    (["minimize loss", "minimize size"], {}),
    (["maximize accuracy", "minimize size"], {"constraints": "size <= 0.8"}),
    ("minimize loss within 20s", {}),
    ("minimize loss", {"max_steps": STEPS}),
]


@pytest.mark.parametrize("stopper", STOPPERS.names())
@pytest.mark.parametrize(("goals", "options"), GOALS, ids=lambda value: str(value).replace("'", ""))
def test_every_stopper_ends_a_sweep_properly(
    stopper: str, goals: Any, options: dict[str, Any]
) -> None:
    result = simulate(stopper, goals, **options)
    assert (result.state, len(result.trials)) == ("finished", 24)
    assert all(trial.state.finished for trial in result.trials)
    assert result.trials[0].state is TrialState.COMPLETED, "trial 0 is never stopped early"
    assert result.trials[0].attempts == 1
    for trial in result.trials:
        assert [point.step for point in trial.reports] == list(range(1, len(trial.reports) + 1))
    early = {trial.number for trial in result.trials if trial.state is TrialState.STOPPED}
    noted = {
        note.trial for note in result.decisions if note.kind in ("stop", "pause") and note.message
    }
    assert early <= noted, "each decision is in the ledger with its reason"


@pytest.mark.parametrize("stopper", STOPPING)
def test_every_stopper_saves_steps_and_keeps_good_trials_and_decides_the_same_again(
    stopper: str,
) -> None:
    whole, part, again = simulate("none"), simulate(stopper), simulate(stopper)
    values = sorted(trial.metrics["loss"] for trial in whole.trials)
    assert any(trial.state is TrialState.STOPPED for trial in part.trials)
    assert part.best is not None
    assert part.best.metrics["loss"] <= values[2]
    assert steps(part) < 0.8 * steps(whole)
    assert list(part.trials) == list(again.trials)
    assert part.decisions == again.decisions


@pytest.mark.parametrize("stopper", STOPPING)
def test_every_stopper_goes_on_where_its_ledger_ends(stopper: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"suggester": "random", "stopper": stopper, "workers": 4, "seed": 3}
    spec = SweepSpec("parts", SPACE, parse_goals("minimize loss"), **given)
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    snapshots = []
    for trials in (12, 24):
        spec = replace(spec, budget=Budget(trials=trials))
        made = SimulatedDispatcher(curve, 4)
        snapshots.append(
            conduct(spec, ledger, SimulatedDispatcher, lambda made=made: made, resume=True)
        )
    assert len(snapshots[1].trials) == 24
    assert list(snapshots[1].trials[:12]) == list(snapshots[0].trials)
    assert snapshots[1].best is not None
    assert len(snapshots[1].best.reports) == STEPS


@pytest.mark.parametrize("stopper", STOPPING)
@pytest.mark.parametrize("replay", [flat, rising])
def test_no_trial_is_stopped_on_the_flat_part(replay: Any, stopper: str) -> None:
    result = simulate(stopper, replay=replay, seed=0)
    few = [trial.number for trial in result.trials if len(trial.reports) < FLAT]
    assert len(few) <= 3, "only those that had the worker's slot before trial 0's second report"
    assert result.best is not None
    assert len(result.best.reports) == STEPS


def test_asha_promotes_a_third_from_each_level() -> None:
    result = simulate("asha", trials=81, max_steps=STEPS)
    reached = [len(trial.reports) for trial in result.trials]
    counts = [sum(length >= level for length in reached) for level in (1, 3, 9, 27)]
    assert counts[0] == 81
    for more, fewer in itertools.pairwise(counts):
        assert more / 3 - 1 <= fewer <= more / 3 + 12
    assert set(reached) == {1, 3, 9, 27}
    assert [one for one in result.trials if one.attempts > 1], "some were promoted from a pause"
    whole = {one.state for one in result.trials if len(one.reports) == STEPS}
    assert whole == {TrialState.COMPLETED}


@pytest.mark.parametrize(("suggester", "guided"), [("bayes", True), ("random", False)])
def test_curve_chooses_configurations_under_the_default_suggester(
    suggester: str, guided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, kind = [], STOPPERS.get("curve")
    monkeypatch.setattr(kind, "propose", lambda self, trials: asked.append(self.guided))
    simulate("curve", trials=4, suggester=suggester)
    assert set(asked) == ({True} if guided else set())


# asha, one report after the other


def make(name: str = "asha", **options: Any) -> Stopper:
    return STOPPERS.get(name)(parse_goals("minimize loss"), **options)


def decided(
    stopper: Stopper, number: int, points: Sequence[ReportPoint], attempts: int
) -> Decision:
    trial = Trial(number, {}, TrialState.RUNNING, attempts=attempts, reports=tuple(points))
    stopper.observe(trial)
    return stopper.decide(trial, [])


def report(stopper: Stopper, number: int, losses: Sequence[float], first_step: int = 1) -> Decision:
    """The decision after the last of some reports of a trial."""
    counted = enumerate(losses, start=first_step)
    points = [ReportPoint(step, {"loss": loss}, float(step)) for step, loss in counted]
    return decided(stopper, number, points, 1)


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_without_pausing_the_leader_of_a_rung_always_goes_on(name: str) -> None:
    stopper, best = make(name, can_pause=False), float("inf")
    for number, loss in enumerate([9.0, 8.0, 10.0, 7.0, 6.0, 11.0, 5.0]):
        decision = report(stopper, number, [loss])
        assert loss >= best or decision.action == "continue", decision.reason
        best = min(best, loss)


def test_the_median_stops_no_trial_that_is_as_good() -> None:
    stopper = make("median", grace=1)
    assert {report(stopper, number, [0.5] * 3).action for number in range(12)} == {"continue"}
    assert report(stopper, 12, [0.6] * 3).reason == "median: 12 of 12 trials were better at 3"


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_retry_is_judged_by_its_own_reports(name: str) -> None:
    """The worker is lost after the attempt has reached the third step, with a poor value."""
    stopper = make(name, can_pause=False, grace=1)
    lost = [ReportPoint(step, {"loss": 0.9}, step, 1, step) for step in (1, 2, 3)]
    retry = [ReportPoint(step, {"loss": 0.1}, step, 2, step) for step in (1, 2, 3)]
    report(stopper, 0, [0.5])
    report(stopper, 0, [0.5, 0.4, 0.3])
    assert decided(stopper, 2, lost, 1).action == "stop"
    assert decided(stopper, 2, retry[:1], 2) == Decision("continue")
    assert decided(stopper, 2, retry, 2) == Decision("continue")


def test_levels_are_whole_steps_and_follow_grace_and_factor() -> None:
    stopper = make(can_pause=False)
    assert report(stopper, 0, [1.0]).action == "continue"
    assert report(stopper, 1, [2.0]) == Decision("stop", "asha: 2 of 2 at 1, the best 1 go on")
    stopper = make(can_pause=True)
    wait = [report(stopper, number, [2.0 + number], first_step=0) for number in range(3)]
    assert {decision.action for decision in wait} == {"continue"}, "step 0 is not compared"
    for number in range(3):
        last = report(stopper, number, [2.0 + number, 1.0 + number], first_step=0)
    assert last == Decision("pause", "asha: 3 of 3 at 1, the best 1 go on")
    last = report(stopper, 0, [2.0, 1.0, 0.9, 0.8], first_step=0)
    assert last == Decision("pause", "asha: 1 of 1 at 3, too few to choose from yet")
    stopper = make(grace=5, factor=2, can_pause=True)
    for number in range(2):
        assert report(stopper, number, [1.0 + number] * 4).action == "continue"
        decision = report(stopper, number, [1.0 + number] * 5)
    assert decision == Decision("pause", "asha: 2 of 2 at 5, the best 1 go on")
    assert report(stopper, 0, [1.0] * 10).reason.startswith("asha: 1 of 1 at 10,")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grace": 0}, "grace of stopper 'asha' must be above 0 and finite, got 0"),
        ({"grace": float("inf")}, "grace of stopper 'asha' must be above 0 and finite, got inf"),
        ({"factor": 1}, "factor of stopper 'asha' must be at least 2, got 1"),
        ({"brackets": 0}, "brackets of stopper 'asha' must be at least 1, got 0"),
    ],
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(automl.UsageError, match=message):
        make(**options)
