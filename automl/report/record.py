"""Everything about a sweep that its report tells, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from automl.core import text
from automl.core.events import Begun, Command, Ended, Moved, Noted, Proposed, SweepEvent
from automl.core.goals import Goal
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState
from automl.errors import AutomlError, StoreError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Space

from . import confirmations
from .confirmations import Confirmation

if TYPE_CHECKING:
    from automl.ledger import Ledger


@dataclass(frozen=True)
class Attempt:
    """When one attempt ran, in seconds of the sweep, and the state that it ended in ("running" while it does)."""

    trial: int
    number: int
    begun: float
    ended: float
    state: str


@dataclass(frozen=True)
class Note:
    """Something that the controller wrote down: a fallback, a stopper's decision, why the sweep ended."""

    kind: str
    message: str
    trial: int | None
    at: float


@dataclass(frozen=True)
class Record:
    """A sweep as its report sees it.

    Args:
        snapshot: of the sweep; spec: what was asked.
        environment: git commit, versions and hardware, empty where they were not kept.
        attempts: in order of their beginning; notes: in order.
        limits: what was pinned or narrowed, and from which trial on.
        confirmation: of the best configurations, None where they were not trained again.
    """

    snapshot: Snapshot
    spec: SweepSpec
    environment: Mapping[str, Any] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    notes: Sequence[Note] = ()
    confirmation: Confirmation | None = None
    limits: Sequence[tuple[int, str]] = ()

    @classmethod
    def read(cls, ledger: Ledger, sweep: str) -> Record:
        """The sweep of that name as the ledger has it now; raises UsageError where there is none."""
        snapshot, events = ledger.snapshot(sweep), list(ledger.events(sweep))
        attempts, notes = _attempts(events, snapshot), _notes(events)
        spec, environment = ledger.spec(sweep), ledger.environment(sweep)
        return cls(
            snapshot,
            spec,
            environment,
            attempts,
            notes,
            confirmations.read(ledger, sweep),
            _limits(events),
        )

    @classmethod
    def stored(cls, store: str, snapshot: Snapshot) -> Record:
        """The sweep at that moment, with what its store knows beside the trials; without it where it is gone."""
        from automl.ledger import Ledger

        try:
            ledger = Ledger.open(store, readonly=True)
        except StoreError:
            return cls.of(snapshot)
        try:
            return replace(cls.read(ledger, snapshot.sweep), snapshot=snapshot)
        except AutomlError:
            return cls.of(snapshot)
        finally:
            ledger.close()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Record:
        """What can be told where there is no ledger to ask."""
        spec = snapshot.spec or SweepSpec(
            snapshot.sweep,
            guessed_space(snapshot.trials),
            snapshot.goals,
            snapshot.constraints,
            budget=snapshot.budget,
        )
        attempts = [
            Attempt(t.number, t.attempts, t.started, t.started + t.seconds, str(t.state))
            for t in snapshot.trials
            if t.started is not None
        ]
        return cls(snapshot, spec, attempts=sorted(attempts, key=lambda a: a.begun))

    @property
    def space(self) -> Space:
        """What was tuned."""
        return self.spec.space

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.snapshot.goals[0]

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return self.snapshot.trials

    def value(self, trial: Trial, index: int = 0) -> float | None:
        """What a trial is worth for a goal."""
        return text.goal_value(trial, self.snapshot, index)

    def scored(self) -> list[tuple[Trial, float]]:
        """The trials that have a value for the first goal, the best first."""
        found = [
            (trial, value) for trial in self.trials if (value := self.value(trial)) is not None
        ]
        return sorted(found, key=lambda item: (self.goal.loss(item[1]), item[0].number))


def guessed_space(trials: Sequence[Trial]) -> Space:
    """A space of the values that were tried, where nobody says what the space was."""
    values: dict[str, dict[Any, None]] = {}
    for trial in trials:
        for name, value in trial.params.items():
            values.setdefault(name, {})[value] = None
    return Space(*(Choice(name, list(tried)) for name, tried in values.items()))


def _attempts(events: Iterable[SweepEvent], snapshot: Snapshot) -> list[Attempt]:
    open_: dict[int, Begun] = {}
    found: list[Attempt] = []
    for event in events:
        if isinstance(event, Begun):
            open_[event.trial] = event
        elif isinstance(event, Ended | Moved) and event.trial in open_:
            if isinstance(event, Moved) and event.state is TrialState.RUNNING:
                continue
            begun = open_.pop(event.trial)
            state = str(event.outcome.ending) if isinstance(event, Ended) else str(event.state)
            found.append(
                Attempt(event.trial, begun.attempt, begun.at, max(event.at, begun.at), state)
            )
    now = snapshot.seconds
    found += [Attempt(b.trial, b.attempt, b.at, max(now, b.at), "running") for b in open_.values()]
    return sorted(found, key=lambda attempt: attempt.begun)


def _limits(events: Iterable[SweepEvent]) -> list[tuple[int, str]]:
    proposed, found = 0, []
    for event in events:
        proposed += isinstance(event, Proposed)
        if isinstance(event, Command) and event.kind == "limits":
            for name, data in event.content.items():
                limit = "as declared again" if data is None else str(Limit.from_dict(data))
                found.append((proposed, f"{name} {limit}"))
    return found


def _notes(events: Iterable[SweepEvent]) -> list[Note]:
    return [Note(e.kind, e.message, e.trial, e.at) for e in events if isinstance(e, Noted)]
