"""Everything that the report of a sweep shows, read once from its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from automl.core import (
    Goal,
    Noted,
    Snapshot,
    SweepSpec,
    SweepState,
    Trial,
)
from automl.errors import AutomlError, StoreError
from search_spaces import Space

from . import confirmations
from .confirmations import Confirmation

if TYPE_CHECKING:
    from automl.ledger import Ledger


@dataclass(frozen=True)
class Record:
    """A sweep as its report shows it.

    Args:
        snapshot: of the sweep.
        environment: git commit, versions and hardware; empty if they are not known.
        notes: by time.
        confirmation: repeated trainings of the best configurations; None if there are none.
    """

    snapshot: Snapshot
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[Noted] = ()
    confirmation: Confirmation | None = None

    @classmethod
    def read(cls, ledger: Ledger, sweep: str) -> Record:
        """Read a sweep from its ledger; raises UsageError if there is none of that name."""
        state, events = SweepState(), list(ledger.events(sweep))
        for number, event in enumerate(events, 1):
            state.apply(event, number)
        info = next(info for info in ledger.sweeps() if info.name == sweep)
        snapshot = Snapshot.of(state, info.state, info.seconds)
        return cls(
            snapshot,
            state.environment,
            [event for event in events if isinstance(event, Noted)],
            confirmations.read(ledger, snapshot),
        )

    @classmethod
    def stored(cls, store: str, snapshot: Snapshot) -> Record:
        """The sweep at that moment, with the rest from its store if that can still be read."""
        from automl.ledger import Ledger

        try:
            ledger = Ledger.open(store, readonly=True)
        except StoreError:
            return cls.of(snapshot)
        try:
            again = confirmations.read(ledger, snapshot)
            found = cls.read(ledger, snapshot.sweep)
            return replace(found, snapshot=snapshot, confirmation=again)
        except AutomlError:
            return cls.of(snapshot)
        finally:
            ledger.close()

    @classmethod
    def of(cls, snapshot: Snapshot, confirmation: Confirmation | None = None) -> Record:
        """The part that is known without a ledger, and the runs of `automl confirm`."""
        return cls(snapshot, confirmation=confirmation)

    @property
    def spec(self) -> SweepSpec:
        """The settings of the sweep."""
        assert self.snapshot.spec is not None, "a sweep that was run has its settings"
        return self.snapshot.spec

    @property
    def space(self) -> Space:
        """The search space."""
        return self.spec.known_space

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.snapshot.goals[0]

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return self.snapshot.trials

    def scored(self) -> list[tuple[Trial, float]]:
        """The trials with a value for the first goal, the best first."""
        found = [
            (trial, value)
            for trial in self.trials
            if (value := self.snapshot.value(trial)) is not None
        ]
        return sorted(found, key=lambda item: (self.goal.loss(item[1]), item[0].number))
