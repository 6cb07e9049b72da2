"""The same controller on a virtual clock: hours of a cluster in seconds, the same every time."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from search_spaces import Space
from workers.protocol import Assignment, Event, Metric, Report

from .core.events import Noted
from .core.goals import Constraint, Goal, parse_constraints, parse_goals
from .core.snapshot import Snapshot
from .core.spec import Budget, SweepSpec
from .dispatch.base import Dispatcher
from .dispatch.simulated.dispatcher import Replay, SimulatedDispatcher
from .dispatch.simulated.faults import Fault
from .errors import UsageError
from .ledger import Ledger, MemoryLedger
from .result import Result
from .suggesters.make import check_beliefs
from .sweeps import check, conduct, read_budget

SELDOM: Final = (50_000, 20, 100)  # thresholds of Python's search for cycles


class Simulation(Result):
    """What a simulated sweep has found; times are virtual seconds.

    Args:
        snapshot: of the sweep.
        trajectory: (virtual seconds, best value of the first goal so far), a point whenever it improves.
        decisions: why trials were stopped, paused or resumed, and what else was noted, in order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trajectory: Sequence[tuple[float, float]],
        decisions: Sequence[Noted] = (),
    ) -> None:
        super().__init__(snapshot)
        self.trajectory, self.decisions = list(trajectory), list(decisions)


class _Watched(SimulatedDispatcher):
    """Keeps the best value so far of all that is reported."""

    def __init__(self, spec: SweepSpec, replay: Replay, num_slots: int, **options: Any) -> None:
        super().__init__(replay, num_slots, **options)
        self._goal, self._constraints = spec.goals[0], spec.constraints
        self._metrics: dict[int, dict[str, float]] = {}
        self.trajectory: list[tuple[float, float]] = []

    def submit(self, assignment: Assignment) -> None:
        if self._constraints:
            self._metrics.setdefault(assignment.trial, {})
        super().submit(assignment)

    def _notice(self, event: Event) -> None:
        if not isinstance(event, Report) or self._goal.metric not in event.metrics:
            return
        value = event.metrics[self._goal.metric]
        if self._constraints:
            known = self._metrics[event.trial]
            known.update(event.metrics)
            if not all(c.holds(known) for c in self._constraints):
                return
        if math.isfinite(value) and (
            not self.trajectory or self._goal.better(value, self.trajectory[-1][1])
        ):
            self.trajectory.append((self.now(), value))


def simulate(
    replay: Replay,
    space: Space,
    goals: str | Goal | Iterable[str | Goal],
    *,
    workers: int = 1,
    seconds: float | None = None,
    seed: int = 0,
    trials: int | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    constraints: str | Constraint | Iterable[str | Constraint] = (),
    suggester: str = "bayes",
    stopper: str = "none",
    max_steps: int | None = None,
    charge_suggestions: bool = False,
    faults: Sequence[Fault] = (),
    max_retries: int = 2,
    store: str | None = None,
    beliefs: Mapping[str, Any] | None = None,
    metrics: Iterable[Metric] = (),
) -> Simulation:
    """Run a sweep whose trials are replayed on a virtual clock: the very controller of `sweep`.

    Args:
        replay: called with a configuration; yields (seconds since the last report, metrics), in order, and may raise
            `TrialFailure`. Steps are yields counted from 1. A paused trial's generator is kept, never restarted.
        space: what is tuned.
        goals: such as "minimize loss".
        workers: number of slots.
        seconds: virtual seconds after which the sweep ends; trials: how many at most; budget: further ends.
        seed: the same seed gives the same simulation.
        constraints, suggester, stopper: as in `sweep`.
        max_retries: attempts after the first that a trial gets when the configuration was not to blame.
        max_steps: the length of a curve, where it is known in advance.
        charge_suggestions: the real time that suggesting and deciding take passes on the virtual clock.
        faults: what goes wrong (`automl.dispatch.simulated.faults`): stragglers, dying workers, lost nodes.
        store: folder or URL of a ledger to write to; None keeps everything in memory.
        beliefs: about good values; metrics: what is reported; both as in `sweep`.

    Raises:
        UsageError: an argument is wrong, or no end is given.

    Example:
        >>> def replay(params):
        ...     for step in range(10):
        ...         yield 60.0, {"loss": params["lr"] + 1 / (step + 1)}
        >>> result = simulate(replay, space, "minimize loss", workers=8, seconds=36_000, suggester="random")
        >>> result.trajectory[-1]
    """
    spec = SweepSpec(
        name="simulation",
        space=space,
        goals=parse_goals(goals),
        constraints=parse_constraints(constraints),
        budget=_budget(budget, seconds, trials),
        suggester=suggester,
        stopper=stopper,
        workers=workers,
        seed=seed,
        max_retries=max_retries,
        max_steps=max_steps,
        beliefs=check_beliefs(beliefs or {}, space, suggester),
        metrics=tuple(metrics),
    )
    check(spec, "simulated", lambda trial: None)
    made: list[_Watched] = []

    def start() -> Dispatcher:
        options = {
            "max_steps": max_steps,
            "charged": charge_suggestions,
            "faults": faults,
            "seed": seed,
        }
        made.append(_Watched(spec, replay, workers, **options))
        return made[0]

    ledger = Ledger.open(store, create=True) if store else MemoryLedger()
    try:
        spec = replace(spec, name=ledger.create_sweep(spec))
        with _collecting_seldom():
            snapshot = conduct(spec, ledger, _Watched, start)
        notes = [event for event in ledger.events(spec.name) if isinstance(event, Noted)]
    finally:
        ledger.close()
    return Simulation(snapshot, made[0].trajectory if made else [], notes)


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    """A history is kept for good and has no cycles: to go through it for some takes a quarter of the time."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _budget(
    budget: Budget | Mapping[str, Any] | None, seconds: float | None, trials: int | None
) -> Budget:
    if seconds is None:
        return read_budget(budget, trials)
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"seconds must be positive and finite, got {seconds}")
    given = vars(budget) if isinstance(budget, Budget) else dict(budget or {})
    return read_budget({**given, "time": seconds}, trials)
