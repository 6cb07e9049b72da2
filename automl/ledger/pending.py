"""Applies events to the state of a sweep before they are committed."""

from automl.core import SweepEvent, SweepState, Trial, TrialEvent

from .limits import limited


class PendingEvents:
    """The state of a sweep, and the events on it that wait for a commit."""

    def __init__(self, state: SweepState) -> None:
        self.state = state
        self._events: list[SweepEvent] = []

    @property
    def uncommitted(self) -> int:
        """Number of events that wait for a commit."""
        return len(self._events)

    def apply(self, event: SweepEvent) -> Trial | None:
        """Queue an event for the next commit; the trial after it, None if it changes none.

        An event that changes nothing about its trial (a duplicate, or late) is not queued.
        """
        event = limited(event)
        after = self.state.apply(event)
        if after is not None or not isinstance(event, TrialEvent):
            self._events.append(event)
        return after
