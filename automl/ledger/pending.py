"""Events that were applied to the trials of a sweep and wait for a commit."""

from __future__ import annotations

from automl.core.events import Command, Noted, SweepEvent, fold
from automl.core.trial import Trial
from automl.errors import StoreError


class PendingEvents:
    """Folds events into trials and keeps the events until they are committed.

    Args:
        trials: every trial of the sweep by number; `apply` changes this list.
    """

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self.events: list[SweepEvent] = []

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes nothing (a duplicate, or late).

        Raises:
            StoreError: the event skips a trial number.
        """
        if isinstance(event, Noted | Command):
            self.events.append(event)
            return None
        known = event.trial < len(self.trials)
        if not known and event.trial != len(self.trials):
            raise StoreError(
                f"the next trial of the sweep is {len(self.trials)}, got {event.trial}"
            )
        before = self.trials[event.trial] if known else None
        after = fold(before, event)
        if after is None or after is before:
            return None
        if known:
            self.trials[event.trial] = after
        else:
            self.trials.append(after)
        self.events.append(event)
        return after
