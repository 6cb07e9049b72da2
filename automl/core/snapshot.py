"""A sweep at one moment, as the live view, `automl status` and the report show it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from . import ranking
from .events import Begun, Ended, Moved, SweepEvent, TrialEvent
from .goals import Constraint, Goal
from .resources import Budget
from .spec import SweepSpec
from .state import SweepState
from .trial import AGENT, Trial, TrialState


@dataclass(frozen=True)
class Snapshot:
    """The present state of a sweep.

    Args:
        sweep: its name.
        state: "running", "finished", "interrupted" or "failed".
        seconds: wall-clock seconds of the sweep so far, including earlier runs.
        num_slots, busy_slots: of the workers; 0 if no controller runs.
        suggesting: activity of the suggester ("idle", "suggesting", "2 ready").
        gain: by which going on is expected to improve the recommendation at most, noise included;
            None if it is not known.
        error: standard error of the recommendation, likewise.
        suggestion_seconds: how long each of the latest suggestions took.
        brief: the sweep is held for a moment only, to answer agents or people (`control.attend`).
        dashboard: address of the Ray dashboard, "" if there is none.
        reason: why it does not run any more; "" while it runs, and if that is not known.
        share: of the budget that is used, from 0 to 1; None without a limit.
        events: that came since the snapshot before, for those who follow the sweep.
        spec: of the sweep; None if it is not known.
        values: of finished trials for the first goal, by number, if they are known.
    """

    sweep: str
    state: str
    trials: Sequence[Trial]
    goals: tuple[Goal, ...]
    constraints: tuple[Constraint, ...] = ()
    budget: Budget = field(default_factory=Budget)
    seconds: float = 0.0
    num_slots: int = 0
    busy_slots: int = 0
    suggesting: str = "idle"
    gain: float | None = None
    error: float | None = None
    suggestion_seconds: Sequence[float] = ()
    brief: bool = False
    dashboard: str = ""
    share: float | None = None
    events: Sequence[SweepEvent] = ()
    spec: SweepSpec | None = None
    reason: str = ""
    values: Mapping[int, float | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, state: SweepState, shown: str, seconds: float, **status: Any) -> Snapshot:
        """The sweep of a state.

        Args:
            shown: state that people see.
            seconds: of the sweep so far; status: further fields.
        """
        spec = state.spec
        is_limited = spec.budget.spent() is not None
        share = state.use.spent(seconds, len(state.index.known)) if is_limited else None
        return cls(
            spec.name,
            shown,
            tuple(state.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            seconds,
            reason=state.reason if shown == state.closed else "",  # else it is of an earlier end
            share=share,
            spec=spec,
            values=state.values,
            **status,
        )

    def value(self, trial: Trial, index: int = 0) -> float | None:
        """The value of a trial for a goal; None if it has none."""
        if index == 0 and trial.state.finished and trial.number in self.values:
            return self.values[trial.number]
        return ranking.value(trial, self.goals[index], self.constraints)

    @property
    def best(self) -> Trial | None:
        """The best trial so far by the first goal; None if none has succeeded."""
        scored = ((self.value(trial), trial) for trial in self.trials)
        losses = [
            (self.goals[0].loss(value), trial) for value, trial in scored if value is not None
        ]
        return min(losses, key=lambda item: item[0])[1] if losses else None

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals, by number."""
        return ranking.pareto(self.trials, self.goals, self.constraints)

    @property
    def for_agents(self) -> bool:
        """Whether agents have run the newest trials, or alone know what a trial is."""
        if self.trials:
            return self.trials[-1].worker.startswith(AGENT)
        spec = self.spec
        own = spec is not None and spec.workload is None and not spec.command
        return own and not self.reason  # a controller that has ended says why

    @property
    def changed(self) -> list[Trial]:
        """The trials that `events` have changed, as they are now, by number."""
        numbers = {event.trial for event in self.events if isinstance(event, TrialEvent)}
        return [self.trials[number] for number in sorted(numbers)]

    @property
    def transitions(self) -> list[tuple[Trial, TrialState]]:
        """Each trial that `events` bring into another state, as it is now, and that state."""
        return [
            (self.trials[one.trial], TrialState.RUNNING if isinstance(one, Begun) else one.state)
            for one in self.events
            if isinstance(one, Begun | Ended | Moved)
        ]

    def in_state(self, *states: TrialState) -> list[Trial]:
        """The trials that are in one of these states."""
        return [trial for trial in self.trials if trial.state in states]


INFEASIBLE: Final = "infeasible"  # the outcome of a trial that has ended and violates a constraint


class Standings:
    """The values and outcomes of the trials of a sweep, by number.

    Attributes:
        values: of each trial, one for each goal; None without one.
        outcomes: of each trial: its state, or `INFEASIBLE`.
    """

    def __init__(self) -> None:
        self.values: list[tuple[float | None, ...]] = []
        self.outcomes: list[str] = []
        self._losses: list[float] = []
        self._ended: list[float] = []  # infinite if it has not ended

    @classmethod
    def of(cls, snapshot: Snapshot) -> Standings:
        """Those of every trial of a sweep."""
        standings = cls()
        standings.follow(snapshot)
        return standings

    def follow(self, snapshot: Snapshot) -> None:
        """Note what has changed; the first time that is every trial."""
        for trial in snapshot.changed if self.values else snapshot.trials:
            self.take(trial, snapshot)

    def take(self, trial: Trial, snapshot: Snapshot) -> None:
        """Note a trial that is new or has changed; new ones come in order of their numbers."""
        values = tuple(snapshot.value(trial, index) for index in range(len(snapshot.goals)))
        loss = math.inf if values[0] is None else snapshot.goals[0].loss(values[0])
        ended = (trial.ended or 0.0) if trial.state.finished else math.inf
        kept = all(constraint.holds(trial.metrics) for constraint in snapshot.constraints)
        is_ended = trial.state in (TrialState.COMPLETED, TrialState.STOPPED)
        outcome = INFEASIBLE if is_ended and loss == math.inf and not kept else str(trial.state)
        number = trial.number
        self.values[number : number + 1] = [values]
        self.outcomes[number : number + 1] = [outcome]
        self._losses[number : number + 1] = [loss]
        self._ended[number : number + 1] = [ended]

    def best(self) -> int | None:
        """Number of the best trial by the first goal; None if none has a value."""
        least = min(self._losses, default=math.inf)
        return None if least == math.inf else self._losses.index(least)

    def counts(self) -> Counter[str]:
        """Number of trials of each outcome."""
        return Counter(self.outcomes)

    def numbers(self, state: TrialState) -> list[int]:
        """Numbers of the trials in a state."""
        return [number for number, found in enumerate(self.outcomes) if found == state]

    def trajectory(self) -> list[float]:
        """The lowest loss after each finished trial that has one, in order of their ends."""
        both = zip(self._ended, range(len(self._ended)), self._losses, strict=True)
        ended = sorted(one for one in both if max(one[0], one[2]) < math.inf)
        return list(accumulate((loss for _, _, loss in ended), min))
