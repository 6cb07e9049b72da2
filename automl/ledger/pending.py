"""Applies events to the trials of a sweep before they are committed."""

from automl.core import SweepEvent, Trial, TrialEvent
from automl.core.events import fold
from automl.errors import StoreError


class PendingEvents:
    """The trials of a sweep, and the events on them that wait for a commit.

    Args:
        trials: every trial by number; the list grows and its items are replaced as events come.
    """

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self._events: list[SweepEvent] = []

    @property
    def uncommitted(self) -> int:
        """Number of events that wait for a commit."""
        return len(self._events)

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes nothing (a duplicate, or late).

        Raises:
            StoreError: the event skips a trial number.
        """
        trials = self.trials
        if not isinstance(event, TrialEvent):
            self._events.append(event)
            return None
        known = event.trial < len(trials)
        if not known and event.trial != len(trials):
            raise StoreError(f"the next trial of the sweep is {len(trials)}, got {event.trial}")
        before = trials[event.trial] if known else None
        after = fold(before, event)
        if after is None or after is before:
            return None
        if known:
            trials[event.trial] = after
        else:
            trials.append(after)
        self._events.append(event)
        return after
