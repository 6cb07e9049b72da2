from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE, make_spec, patient, quick

import automl
from automl import sweeps
from automl.core.budget import Budget
from automl.core.events import Noted
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState
from automl.dispatch.inline import InlineDispatcher
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.stopping.base import CONTINUE, Decision, Stopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from search_spaces import Choice, Float, Space
from workers.context import Context
from workers.protocol import Assignment, Event, Outcome, lost


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)


def run(
    ledger: Ledger, spec: SweepSpec, objective: Callable[[Context], Any] = quick, **options: Any
) -> Snapshot:
    if not options.get("resume"):
        ledger.create_sweep(spec)
    return sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="inline", **options)


def states(snapshot: Snapshot) -> list[str]:
    return [str(trial.state) for trial in snapshot.trials]


def test_a_sweep_runs_to_its_budget_and_is_in_the_ledger(ledger: Ledger) -> None:
    snapshot = run(ledger, make_spec(trials=4))
    assert snapshot.state == "finished"
    assert states(snapshot) == ["completed"] * 4
    assert snapshot.trials[0].params == SPACE.default()
    assert [trial.source for trial in snapshot.trials] == ["default", "random", "random", "random"]
    best = snapshot.best
    assert best is not None
    assert best.metrics["loss"] == min(trial.metrics["loss"] for trial in snapshot.trials)
    kept = ledger.snapshot("test")
    assert kept.state == "finished"
    assert list(kept.trials) == list(snapshot.trials)
    assert all(len(trial.reports) == 3 and trial.attempts == 1 for trial in kept.trials)


@pytest.mark.parametrize("suggester", ["random", "sobol"])
def test_the_same_seed_proposes_the_same(ledger: Ledger, suggester: str) -> None:
    def params(name: str, seed: int) -> list[Any]:
        spec = make_spec(name, suggester=suggester, seed=seed, trials=6)
        return [trial.params for trial in run(ledger, spec).trials]

    assert params("a", 3) == params("b", 3)
    assert params("a-", 3)[1:] != params("c", 4)[1:]


def test_without_defaults_trial_0_is_the_suggesters(ledger: Ledger) -> None:
    space = Space(Float("lr", 0.0, 1.0), Choice("optimizer", ["sgd", "adam"]))
    snapshot = run(ledger, make_spec(space=space, trials=2))
    assert [trial.source for trial in snapshot.trials] == ["random", "random"]


def test_each_failure_is_what_it_is_and_is_not_tried_again(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory", "too large")
        if trial.number == 2:
            return {"loss": math.nan}
        if trial.number == 3:
            trial.report(step=1, accuracy=0.5)
            return {"lost": 1.0}
        if trial.number == 4:
            raise ValueError("a bug")
        if trial.number == 5:
            return {"loss": "low"}
        if trial.number == 6:
            raise MemoryError
        trial.report(step=1, loss=-math.inf)  # only what is final decides
        return {"loss": 1.0}

    snapshot = run(ledger, make_spec(trials=8), objective)
    kinds = [trial.failure for trial in snapshot.trials]
    expected = [
        "out_of_memory",
        "non_finite",
        "missing_metric",
        "crashed",
        "missing_metric",
        "out_of_memory",
    ]
    assert kinds == [None, *expected, None]
    assert all(trial.attempts == 1 for trial in snapshot.trials)
    assert "'loss'" in snapshot.trials[3].message
    assert "accuracy" in snapshot.trials[3].message
    assert "lost" in snapshot.trials[3].message
    assert "ValueError: a bug" in snapshot.trials[4].message
    assert snapshot.best is not None
    assert snapshot.best.number == 0


def test_a_sweep_whose_trials_all_fail_finishes(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        raise RuntimeError("never")

    snapshot = run(ledger, make_spec(trials=3), objective)
    assert (snapshot.state, states(snapshot), snapshot.best) == ("finished", ["failed"] * 3, None)


def test_the_time_ends_what_runs_and_it_counts_as_stopped(ledger: Ledger) -> None:
    snapshot = run(ledger, make_spec(budget=Budget(time=0.5)), patient)
    assert snapshot.state == "finished"
    assert states(snapshot) == ["stopped"]
    assert snapshot.trials[0].metrics["loss"] > 0
    assert snapshot.best is not None


def test_the_worker_time_ends_a_sweep_over_all_of_its_runs(ledger: Ledger) -> None:
    run(ledger, make_spec(trials=2), quick)  # imports what a trial needs
    snapshot = run(ledger, make_spec("timed", budget=Budget(worker_time=0.5)), patient)
    assert states(snapshot) == ["stopped"]
    assert snapshot.trials[0].seconds > 0.2
    again = run(ledger, make_spec("timed", budget=Budget(worker_time=0.2)), patient, resume=True)
    assert list(again.trials) == list(snapshot.trials)


def test_a_target_ends_a_sweep_at_the_report_that_reaches_it(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        for step in range(100):
            if not trial.report(step=step, bleu=10.0 * trial.number + step):
                break
        return {}

    snapshot = run(
        ledger, make_spec(goals="maximize bleu", budget=Budget(trials=50, target=115.0)), objective
    )
    assert len(snapshot.trials) == 3
    assert states(snapshot) == ["completed", "completed", "stopped"]
    assert max(point.metrics["bleu"] for point in snapshot.trials[2].reports) == 115.0
    ends = [
        event for event in ledger.events("test") if isinstance(event, Noted) and event.kind == "end"
    ]
    assert "reached the target 115" in ends[0].message


def test_a_target_needs_the_constraints(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        return {"loss": 0.1, "size": float(trial.number)}

    spec = make_spec(budget=Budget(trials=9, target=0.2), constraints="size >= 3")
    assert len(run(ledger, spec, objective).trials) == 4


def test_the_target_of_a_workload_whose_last_report_counts_is_not_a_passing_one(
    ledger: Ledger,
) -> None:
    def objective(trial: Context) -> Any:
        trial.report(step=0, loss=0.0)
        return {"loss": 1.0}

    spec = make_spec(budget=Budget(trials=3, target=0.5), last_report_counts=True)
    assert states(run(ledger, spec, objective)) == ["completed"] * 3


def test_a_space_that_is_used_up_ends_a_sweep(ledger: Ledger) -> None:
    space = Space(Choice("a", [1, 2]), Choice("b", [1, 2]))
    spec = make_spec(space=space, suggester="sobol", trials=50)
    snapshot = run(ledger, spec, lambda trial: {"loss": 1.0})
    assert snapshot.state == "finished"
    assert 4 <= len(snapshot.trials) <= 50


def test_a_sweep_can_be_continued_with_more_trials(ledger: Ledger) -> None:
    first = run(ledger, make_spec(trials=3))
    second = run(ledger, make_spec(trials=5), resume=True)
    assert list(second.trials[:3]) == list(first.trials)
    assert len(second.trials) == 5
    assert second.seconds > first.seconds
    assert ledger.spec("test").budget.trials == 5
    with pytest.raises(UsageError, match="has run before"):
        sweeps.run(make_spec(trials=9), ledger=ledger, objective=quick, dispatcher="inline")


def test_resuming_proposes_what_an_uninterrupted_sweep_does(ledger: Ledger) -> None:
    whole = run(ledger, make_spec("whole", trials=6, suggester="sobol"))
    run(ledger, make_spec("parts", trials=3, suggester="sobol"))
    parts = run(ledger, make_spec("parts", trials=6, suggester="sobol"), resume=True)
    assert [trial.params for trial in parts.trials] == [trial.params for trial in whole.trials]


def test_a_stop_request_ends_a_sweep(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.open(tmp_path)

    def objective(trial: Context) -> Any:
        if trial.number == 2:
            other.request_stop("test")
        return patient(trial) if trial.number == 2 else quick(trial)

    snapshot = run(ledger, make_spec(trials=9), objective)
    assert (snapshot.state, states(snapshot)) == ("finished", ["completed", "completed", "stopped"])


def test_whoever_watches_sees_every_step(ledger: Ledger) -> None:
    seen: list[Snapshot] = []
    run(ledger, make_spec(trials=2), on_change=seen.append)
    assert seen[-1].state == "finished"
    assert {len(snapshot.trials) for snapshot in seen} >= {1, 2}
    assert any(
        snapshot.in_state(TrialState.RUNNING) and snapshot.busy_slots == 1 for snapshot in seen
    )
    seconds = [snapshot.seconds for snapshot in seen]
    assert seconds == sorted(seconds)


def test_an_error_of_whoever_watches_leaves_a_sweep_that_can_be_resumed(ledger: Ledger) -> None:
    def fail(snapshot: Snapshot) -> None:
        if snapshot.in_state(TrialState.RUNNING):
            raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="terminal"):
        run(ledger, make_spec(trials=2), on_change=fail)
    kept = ledger.snapshot("test")
    assert (kept.state, states(kept)) == ("failed", ["interrupted"])
    again = run(ledger, make_spec(trials=2), resume=True)
    assert (again.state, states(again)) == ("finished", ["completed", "completed"])
    assert [trial.attempts for trial in again.trials] == [2, 1]


# ---------------------------------------------------------------------- faults, injected by ordinary classes


class Losing(InlineDispatcher):
    """Loses the worker of trial 1 as often as `losses` says; its trials see only that they began."""

    losses = 1

    def _run(self, assignment: Assignment, send: Callable[[Event], None]) -> Outcome:
        if assignment.trial == 1 and assignment.attempt <= self.losses:
            return lost(assignment, "the worker died", seconds=1.0)
        return super()._run(assignment, send)


@pytest.mark.parametrize(
    ("losses", "state", "attempts"), [(1, "completed", 2), (2, "completed", 3), (9, "failed", 3)]
)
def test_a_lost_worker_is_replaced_so_many_times(
    ledger: Ledger, losses: int, state: str, attempts: int
) -> None:
    spec = make_spec(trials=3, max_retries=2)
    ledger.create_sweep(spec)

    def start() -> InlineDispatcher:
        dispatcher = Losing(1, quick)
        dispatcher.losses = losses
        return dispatcher

    snapshot = sweeps.conduct(spec, ledger, Losing, start)
    trial = snapshot.trials[1]
    assert (str(trial.state), trial.attempts) == (state, attempts)
    assert trial.failure == ("crashed" if state == "failed" else None)
    assert trial.seconds >= min(losses, attempts) * 1.0
    assert len(snapshot.trials) == 3


class Sabotaged(Suggester):
    """Fails from its second suggestion on, as often as `bad` says."""

    name = "sabotaged"
    bad: Sequence[Any] = ()
    calls = 0

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> Any:
        type(self).calls += 1
        place = self.calls - 2
        if 0 <= place < len(self.bad):
            answer = self.bad[place]
            if isinstance(answer, Exception):
                raise answer
            return answer
        return [{"lr": 10.0 ** -(1 + self.calls % 4 + self.calls / 100), "optimizer": "sgd"}]


NONSENSE = [
    None,
    "sgd",
    [],
    [{}],
    [{"lr": 5.0, "optimizer": "sgd"}],
    [{"lr": 1e-3, "optimizer": "sgd", "x": 1}],
    [1],
]


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Any]], None]:
    get = SUGGESTERS.get

    def use(bad: Sequence[Any]) -> None:
        monkeypatch.setattr(Sabotaged, "bad", bad)
        monkeypatch.setattr(Sabotaged, "calls", 0)
        monkeypatch.setattr(
            SUGGESTERS, "get", lambda name: Sabotaged if name == "random" else get(name)
        )

    return use


@pytest.mark.parametrize("bad", [RuntimeError("singular"), *NONSENSE], ids=repr)
def test_a_suggester_that_fails_is_replaced_for_once_and_it_is_recorded(
    ledger: Ledger, sabotage: Callable[[Sequence[Any]], None], bad: Any
) -> None:
    sabotage([bad, bad])
    snapshot = run(ledger, make_spec(trials=5))
    assert [trial.source for trial in snapshot.trials] == [
        "default",
        "random",
        "sobol",
        "sobol",
        "random",
    ]
    notes = [
        event
        for event in ledger.events("test")
        if isinstance(event, Noted) and event.kind == "fallback"
    ]
    assert len(notes) == 2
    assert "sobol proposes instead" in notes[0].message


def test_a_suggester_that_fails_three_times_in_a_row_ends_the_sweep(
    ledger: Ledger, sabotage: Callable[[Sequence[Any]], None]
) -> None:
    sabotage([RuntimeError("singular")] * 3)
    with pytest.raises(AutomlError, match="failed 3 times in a row: RuntimeError: singular"):
        run(ledger, make_spec(trials=9))
    kept = ledger.snapshot("test")
    assert (kept.state, states(kept)) == ("failed", ["completed"] * 4)


class Strict(Stopper):
    """Stops each trial at its first report, and would stop trial 0 too; pauses trial 3 once."""

    name = "strict"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        assert trials[trial.number] is trial
        assert trial.number != 0
        if trial.number == 3:
            return Decision("pause", "later") if trial.attempts == 1 else CONTINUE
        return (
            Decision("stop", f"trial {trial.number} is hopeless") if trial.number < 5 else CONTINUE
        )

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        paused = [
            trial.number
            for trial in trials
            if trial.state is TrialState.PAUSED and trial.number == 3
        ]
        return (paused[0], "promoted") if paused and len(trials) > 4 else None


class Pausing(Stopper):
    """Pauses everything and never takes it up again."""

    name = "pausing"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        return Decision("pause", "for ever")


def test_a_stopper_stops_pauses_and_takes_up_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STOPPERS, "get", lambda name: Strict)
    snapshot = run(ledger, make_spec(trials=6))
    assert states(snapshot) == [
        "completed",
        "stopped",
        "stopped",
        "completed",
        "stopped",
        "completed",
    ]
    assert [trial.attempts for trial in snapshot.trials] == [1, 1, 1, 2, 1, 1]
    assert len(snapshot.trials[1].reports) == 1
    notes = [
        (event.kind, event.trial) for event in ledger.events("test") if isinstance(event, Noted)
    ]
    assert notes == [("stop", 1), ("stop", 2), ("pause", 3), ("stop", 4)]


def test_paused_trials_are_stopped_when_the_sweep_ends(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STOPPERS, "get", lambda name: Pausing)
    snapshot = run(ledger, make_spec(trials=3))
    assert (snapshot.state, states(snapshot)) == ("finished", ["completed", "stopped", "stopped"])
    assert all(trial.ended is not None for trial in snapshot.trials)


# ---------------------------------------------------------------------- the Python interface


def test_automl_sweep_returns_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "workers": 1}
    result = automl.sweep(quick, SPACE, goals="minimize loss", trials=3, name="mine", **options)
    assert (result.name, result.state, len(result.trials)) == ("mine", "finished", 3)
    assert result.best is not None
    assert result.pareto == [result.best]
    frame = result.to_pandas()
    assert list(frame["number"]) == [0, 1, 2]
    assert frame["metrics.loss"].min() == result.best.metrics["loss"]
    assert frame["params.optimizer"][0] == "adam"
    assert repr(list(automl.load("mine").trials)) == repr(list(result.trials))
    assert (tmp_path / ".automl" / "ledger.sqlite3").exists()

    with pytest.raises(UsageError, match="there is a sweep named 'mine'"):
        automl.sweep(quick, SPACE, goals="minimize loss", trials=3, name="mine", **options)
    more = automl.sweep(
        quick, SPACE, goals="minimize loss", trials=4, name="mine", resume=True, **options
    )
    assert list(more.trials[:3]) == list(result.trials)
    with pytest.raises(UsageError, match="searches another space"):
        automl.sweep(
            quick,
            Space(Float("x", 0, 1)),
            "minimize loss",
            trials=4,
            name="mine",
            resume=True,
            **options,
        )
    environment = Ledger.open(".automl").environment("mine")
    assert environment["packages"]["sqlalchemy"]
    assert environment["hardware"]["num_cpus"] >= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": None}, "needs an end"),
        ({"trials": 0}, "at least 1"),
        ({"budget": "soon"}, "a duration is like"),
        ({"budget": {"hours": 1}}, "got hours"),
        ({"suggester": "bayse"}, "did you mean 'bayes'"),
        ({"stopper": "nonee"}, "did you mean 'none'"),
        ({"dispatcher": "rey"}, "did you mean 'ray'"),
        ({"goals": "loss"}, "a goal is"),
        ({"goals": []}, "at least one goal"),
        ({"constraints": "loss < 3"}, "a constraint is"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"resources": {"cpus": 0}}, "at least 1 CPU"),
        ({"resources": {"cores": 1}}, "cpus, gpus and memory"),
        ({"name": "../x"}, "a sweep's name is"),
        ({"name": "-x"}, "a sweep's name is"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, Any] = {"goals": "minimize loss", "trials": 3, "dispatcher": "inline"}
    with pytest.raises(UsageError, match=message):
        automl.sweep(quick, SPACE, **{**arguments, **changes})
    assert not list(tmp_path.iterdir())
