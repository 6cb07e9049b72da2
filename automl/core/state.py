"""The state of a sweep: the fold of its log. Pure: no file, no clock, nothing random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from automl.errors import StoreError
from workers.protocol import Report

from .budget_use import BudgetUse
from .events import (
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Moved,
    Proposed,
    SpecChanged,
    SweepEvent,
    TrialEvent,
    fold,
)
from .marks import MARK, Marks, add_marks
from .spec import SweepSpec
from .trial import Trial, TrialState
from .trial_index import TrialIndex

STOP = "stop"  # the kind of the command that ends the sweep
LIMITS = "limits"  # the kind of the command that narrows parameters
_UNANSWERED = (STOP, LIMITS, MARK)  # kinds of commands that get no answer


class SweepState:
    """The state of one sweep after the events that were applied.

    Attributes:
        number: of the last record that was applied.
        spec: the newest specification; environment: where the sweep was created.
        trials: every trial by number; the list grows and its items are replaced.
        index: of the trials by state.
        use: of the budget.
        seconds: of the sweep, at the latest event.
        closed: how the last controller ended its run; "interrupted" before the first.
        limits: of parameters that a person has narrowed, as JSON data (`suggesters.domain.Limit`).
        marks: of the sweep (None) and of its trials.
        requests: commands that wait for an answer or a trial, by number of their record, in order.
        stop_number: number of the latest command to stop the sweep; 0 if there is none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._spec: SweepSpec | None = None
        self.environment: Mapping[str, Any] = {}
        self.trials: list[Trial] = []
        self.index = TrialIndex()
        self._use: BudgetUse | None = None
        self.seconds = 0.0
        self.closed = "interrupted"
        self.limits: dict[str, Any] = {}
        self.marks: Marks = {}
        self.requests: dict[int, Command] = {}
        self.stop_number = 0

    @property
    def spec(self) -> SweepSpec:
        """The newest specification."""
        if self._spec is None:
            raise StoreError("the log of the sweep does not begin with its specification")
        return self._spec

    @spec.setter
    def spec(self, spec: SweepSpec) -> None:
        """Replace the specification by an equal one that has more than its dictionary."""
        self._spec = spec

    @property
    def use(self) -> BudgetUse:
        """The use of the budget."""
        if self._use is None:
            raise StoreError("the log of the sweep does not begin with its specification")
        return self._use

    def apply(self, event: SweepEvent, number: int = 0) -> Trial | None:
        """Take in the next event.

        Args:
            number: of its record; 0 if it is not recorded yet.

        Returns:
            The trial after the event; None if it changes none (a duplicate, or late).

        Raises:
            AutomlError: the event cannot follow the earlier ones.
        """
        self.number = max(self.number, number)
        self.seconds = max(self.seconds, getattr(event, "at", 0.0))
        if isinstance(event, TrialEvent):
            return self._apply_to_trial(event)
        if isinstance(event, Created | SpecChanged):
            self._specify(event)
        elif isinstance(event, Closed):
            self.closed = event.state
        elif isinstance(event, Command):
            self._command(event, number)
        elif isinstance(event, Answered):
            self.requests.pop(event.command, None)
        return None

    def _apply_to_trial(self, event: TrialEvent) -> Trial | None:
        trials, number = self.trials, event.trial
        known = number < len(trials)
        if not known and number != len(trials):
            raise StoreError(f"the next trial of the sweep is {len(trials)}, got {number}")
        before = trials[number] if known else None
        after = fold(before, event)
        if after is None or after is before:
            return None
        if known:
            trials[number] = after
        else:
            trials.append(after)
        self.index.update(after)
        if isinstance(event, Proposed) and event.command is not None:
            self.requests.pop(event.command, None)
        self._count(event, before, after)
        return after

    def _count(self, event: TrialEvent, before: Trial | None, after: Trial) -> None:
        """Take an event into account that has changed a trial."""
        use = self.use
        if isinstance(event, Begun):
            use.begin(after.number, event.at, event.slots)
        elif isinstance(event, Ended):
            use.end(after, event.outcome.seconds)
        elif isinstance(event, Moved) and before and before.state is TrialState.RUNNING:
            use.end(after, event.seconds)
        elif isinstance(event, Report):
            use.check_target(after)

    def _specify(self, event: Created | SpecChanged) -> None:
        spec = SweepSpec.from_dict(event.spec)
        if isinstance(event, Created):
            self.environment = event.environment
        if self._use is None:
            stops_early = spec.stopper != "none"
            self._use = BudgetUse(
                spec.budget, spec.goals, spec.constraints, stops_early=stops_early
            )
        else:
            self._use.limit(spec.budget, self.trials)
        self._spec = spec

    def _command(self, command: Command, number: int) -> None:
        if command.kind == STOP:
            self.stop_number = number
        elif command.kind == LIMITS:
            for name, limit in command.content.items():
                self.limits.pop(name, None)
                if limit is not None:
                    self.limits[name] = limit
        elif command.kind == MARK:
            add_marks(self.marks, [command])
        if command.kind not in _UNANSWERED:
            self.requests[number] = command
