"""A controller is killed with -9 at every named point of a sweep, and the next one takes it up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faults
import pytest
import soak_sweeps
from objectives import make_spec, poisoned, quick
from processes import begin
from soak_kills import soak_controllers

from automl import sweeps
from automl.control.controller import conduct
from automl.core.events import Noted
from automl.core.trial import TrialState
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Ledger
from workers.protocol import Assignment, Event, Outcome, Report, Started


def test_a_controller_dies_at_every_point_and_nothing_is_lost_or_counted_twice(
    tmp_path: Path,
) -> None:
    count = soak_controllers(len(faults.POINTS), seed=1, folder=tmp_path)
    assert count.problems == []
    assert dict(count.kills) == dict.fromkeys(faults.POINTS, 1)
    assert (count.lost, count.doubled, count.ended) == (0, 0, count.sweeps)
    assert count.acknowledged > 50


def test_clocks_that_jump_an_hour_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock of this process jumps to and fro in the middle of each trial."""
    real, jump = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jump[0])
    hours: Iterator[float] = iter([3600.0, -3600.0, 0.0, -7200.0, 86400.0] * 9)

    def objective(trial: Any) -> dict[str, float]:
        for step in range(3):
            jump[0] = next(hours)
            assert trial.report(step=step, loss=1.0)
        return {"loss": 1.0}

    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(trials=5)
    ledger.create_sweep(spec)
    snapshot = sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="inline")
    assert [(trial.state, trial.attempts) for trial in snapshot.trials] == [
        (TrialState.COMPLETED, 1)
    ] * 5
    assert 0 < snapshot.seconds < 600
    assert all(
        0 <= trial.seconds < 600 and 0 <= trial.reports[0].seconds < 600
        for trial in snapshot.trials
    )
    assert ledger.snapshot("test").state == "finished"


class Stuttering(InlineDispatcher):
    """Sends every report twice and out of order, and late ones of earlier attempts."""

    def _run(self, assignment: Assignment, send: Callable[[Event], None]) -> Outcome:
        held: list[Report] = []

        def stutter(event: Event) -> None:
            assert isinstance(event, Report)
            late = Report(event.trial, event.attempt - 1, 7, event.step, {"loss": -99.0}, 0.0)
            held.append(event)
            if len(held) == 3:
                for each in (held[2], held[0], held[0], late, held[1], held[2]):
                    send(each)
            send(Started(assignment.trial, assignment.attempt - 1, "ghost"))

        outcome = super()._run(assignment, stutter)
        send(Outcome(assignment.trial, assignment.attempt - 1, outcome.ending, {"loss": -99.0}))
        return outcome

    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        def twice(event: Event | None) -> None:
            handle(event)
            if isinstance(event, Outcome):
                handle(event)

        super().poll(twice, timeout)


def test_events_that_come_twice_late_or_out_of_order_change_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    for name, kind in (("plain", InlineDispatcher), ("stutter", Stuttering)):
        spec = make_spec(name, trials=4)
        ledger.create_sweep(spec)
        conduct(spec, ledger, kind, lambda kind=kind: kind(1, quick))
    plain, stutter = ledger.trials("plain"), ledger.trials("stutter")
    assert [t.params for t in stutter] == [t.params for t in plain]
    for one, other in zip(plain, stutter, strict=True):
        assert [(p.step, p.attempt, p.sequence, p.metrics) for p in other.reports] == [
            (p.step, p.attempt, p.sequence, p.metrics) for p in one.reports
        ]
        assert (other.state, other.attempts, other.metrics["loss"]) == (
            one.state,
            1,
            one.metrics["loss"],
        )
    assert len(list(ledger.events("stutter"))) == len(list(ledger.events("plain")))
    assert not [
        event
        for event in ledger.events("stutter")
        if isinstance(event, Noted) and event.kind != "end"
    ]


def test_an_interrupted_controller_lets_the_next_one_suggest_the_same(tmp_path: Path) -> None:
    """A sweep that is killed twice proposes the same as one that is not killed."""
    ledger = Ledger.open(tmp_path, create=True)
    for name in ("whole", "killed"):
        ledger.create_sweep(make_spec(name, trials=6, suggester="sobol"))
    sweeps.run(ledger.spec("whole"), ledger=ledger, objective=quick, dispatcher="inline")
    for skip in (2, 1):
        child = soak_sweeps.launch(tmp_path, "killed", "ended", skip)
        child.join()
        assert child.exitcode == -signal.SIGKILL
    sweeps.run(
        ledger.spec("killed"), ledger=ledger, objective=quick, dispatcher="inline", resume=True
    )
    assert [t.params for t in ledger.trials("killed")] == [t.params for t in ledger.trials("whole")]
    assert max(trial.attempts for trial in ledger.trials("killed")) >= 2


def test_a_trial_that_kills_its_controller_fails_in_the_end(tmp_path: Path) -> None:
    """A segmentation fault inline would otherwise be tried again at each resume."""
    spec = make_spec(trials=3, max_retries=2)
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    codes = []
    for _ in range(4):
        child = begin(tmp_path, spec, poisoned)
        child.join()
        codes.append(child.exitcode)
    assert codes == [-signal.SIGSEGV] * 3 + [0]
    trials = ledger.trials("test")
    assert [str(trial.state) for trial in trials] == ["failed", "completed", "completed"]
    assert (trials[0].failure, trials[0].attempts) == ("crashed", 3)
    assert trials[0].message == "its controller was lost (after 2 retries)"
