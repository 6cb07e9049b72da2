"""Applies events to the trials of a sweep before they are committed."""

from automl.core import Command, Noted, SweepEvent, Trial
from automl.core.events import fold
from automl.errors import StoreError


def apply(event: SweepEvent, trials: list[Trial], pending: list[SweepEvent]) -> Trial | None:
    """Fold an event into its trial and append it to the events that wait for a commit.

    Args:
        trials: every trial of the sweep by number; changed in place.
        pending: events since the last commit; changed in place.

    Returns:
        The trial after the event; None if the event changes nothing (a duplicate, or late).

    Raises:
        StoreError: the event skips a trial number.
    """
    if isinstance(event, Noted | Command):
        pending.append(event)
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
    pending.append(event)
    return after
