"""Runs the controller on a virtual clock: simulates hours of a cluster in seconds, repeatably."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from automl.core.trial import LearningCurve
from search_spaces import Space
from workers.protocol import Event, Metric, Report

from .control.beginning import create, read_spec
from .control.plugins import StopperLike, SuggesterLike
from .control.preflight import check_spec
from .control.wiring import conduct
from .core import (
    Budget,
    Constraint,
    Goal,
    Noted,
    Snapshot,
    SweepSpec,
    arguments,
    read_budget,
)
from .dispatch.base import Dispatcher
from .dispatch.simulated import Replay, SimulatedDispatcher
from .errors import UsageError
from .ledger import Ledger
from .ledger.database import IN_MEMORY
from .report import progress
from .result import Result


class Simulation(Result):
    """The result of a simulated sweep; times are virtual seconds.

    Args:
        snapshot: of the sweep.
        trajectory: (virtual seconds, best value of the first goal so far), a point for each
            improvement.
        decisions: notes on why trials were stopped, paused or resumed, and other notes, in order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trajectory: Sequence[tuple[float, float]],
        decisions: Sequence[Noted] = (),
    ) -> None:
        super().__init__(snapshot)
        self.trajectory = list(trajectory)
        self.decisions = list(decisions)


class _Trajectory:
    """Collects the best reported value of the first goal that holds the constraints."""

    def __init__(self, spec: SweepSpec) -> None:
        self._goal = spec.goals[0]
        self._constraints = spec.constraints
        self._curves: dict[int, LearningCurve] = {}  # by trial number
        self._best = math.inf
        self.points: list[tuple[float, float]] = []

    def add(self, event: Event, now: float) -> None:
        """Take in an event at this virtual time."""
        if not isinstance(event, Report) or self._goal.metric not in event.metrics:
            return
        new = LearningCurve(self._goal, self._constraints)
        curve = self._curves.setdefault(event.trial, new)
        loss = curve.add(event.metrics).loss
        if curve.is_feasible and loss < self._best:
            self._best = loss
            self.points.append((now, self._goal.loss(self._best)))


def simulate(
    replay: Replay,
    space: Space | Mapping[str, Any],
    goals: str | Goal | Iterable[str | Goal],
    *,
    workers: int = 1,
    seconds: float | None = None,
    seed: int = SweepSpec.seed,
    trials: int | None = None,
    budget: Budget | Mapping[str, Any] | str | float | None = None,
    constraints: str | Constraint | Iterable[str | Constraint] = (),
    suggester: SuggesterLike = SweepSpec.suggester,
    stopper: StopperLike = SweepSpec.stopper,
    max_steps: int | None = None,
    charge_suggestions: bool = False,
    mean_lifetime: float | None = None,
    max_retries: int = SweepSpec.max_retries,
    store: str | None = None,
    prior: Mapping[str, Any] | None = None,
    metrics: Iterable[Metric] = (),
    replicates: str | int = SweepSpec.replicates,
) -> Simulation:
    """Run a sweep whose trials are replayed on a virtual clock, with the controller of `sweep`.

    Args:
        replay: called with a configuration; yields (seconds since the last report, metrics), in
            order, and may raise `TrialFailure`. Steps are the yields, counted from 1. The generator
            of a paused trial is kept and goes on later.
        space: the parameters to tune.
        goals: such as "minimize loss".
        seconds: virtual seconds after which the sweep ends.
        trials: how many at most.
        budget: further limits that end the sweep.
        seed: the same seed gives the same simulation.
        constraints, suggester, stopper: as in `sweep`.
        charge_suggestions: advance the virtual clock by the real time of suggesting and deciding.
        mean_lifetime: virtual seconds after which a worker dies, in the mean; None for never.
        store: folder or URL of a ledger to write to; None to keep everything in memory.
        prior: good values by parameter; metrics: that are reported; both as in `sweep`.

    Raises:
        UsageError: an argument is wrong, or no budget is given.

    Example:
        >>> def replay(params):
        ...     for step in range(10):
        ...         yield 60.0, {"loss": params["lr"] + 1 / (step + 1)}
        >>> result = simulate(replay, space, "minimize loss", workers=8, seconds=36_000)
        >>> result.trajectory[-1]
    """
    arguments.of_type("replay", replay, Callable, "a function")
    workers = arguments.whole("workers", workers, least=1)
    if mean_lifetime is not None and arguments.finite("mean_lifetime", mean_lifetime) <= 0:
        raise UsageError(f"mean_lifetime must be above 0, got {mean_lifetime!r}")
    spec, plugins, notes = read_spec(
        space,
        goals,
        constraints,
        suggester,
        stopper,
        name="simulation",
        prior=prior,
        metrics=metrics,
        budget=read_budget(budget, trials=trials, time=seconds),
        workers=workers,
        seed=seed,
        max_retries=max_retries,
        max_steps=max_steps,
        replicates=replicates,
    )
    check_spec(spec, "simulated", lambda trial: None, plugins)
    progress.say(notes)
    trajectory = _Trajectory(spec)

    def start() -> Dispatcher:
        return SimulatedDispatcher(
            replay,
            workers,
            max_steps=max_steps,
            charged=charge_suggestions,
            mean_lifetime=math.inf if mean_lifetime is None else mean_lifetime,
            seed=seed,
            on_event=trajectory.add,
        )

    location = IN_MEMORY if store is None else arguments.location("store", store)
    ledger = Ledger.open(location, create=True)
    with contextlib.closing(ledger):
        spec = create(ledger, spec, rename=True, described=False)
        snapshot = conduct(spec, ledger, SimulatedDispatcher, start, plugins=plugins)
        decisions = [event for event in ledger.events(spec.name) if isinstance(event, Noted)]
    return Simulation(snapshot, trajectory.points, decisions)
