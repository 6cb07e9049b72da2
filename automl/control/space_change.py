"""What a sweep does with another space when it is resumed."""

from dataclasses import replace

from automl.core import Noted, SweepSpec
from automl.errors import SpaceError, UsageError
from automl.ledger.protocol import SweepLedger, SweepRecorder
from search_spaces.change import changes, joined


def with_known_space(
    ledger: SweepLedger, recorder: SweepRecorder, wanted: SweepSpec, at: float = 0.0
) -> SweepSpec:
    """The specification to go on with, which knows the space of the earlier trials.

    If the space has changed, an event of kind "space" says how. The trials stay as they are.

    Args:
        ledger: has the specification until now; recorder: of the same sweep.
        wanted: with the space of the trials to come.
        at: seconds since the sweep began.

    Raises:
        UsageError: a parameter is missing or has another type, or a new one has no default.
    """
    stored = ledger.spec(wanted.name)
    spec = replace(wanted, explored=stored.explored)
    if stored.space == wanted.space:
        return spec
    if recorder.trials:
        try:
            tried = [trial.params for trial in recorder.trials]
            spec = replace(spec, explored=joined(stored.known_space, wanted.space, tried))
        except SpaceError as error:
            raise UsageError(f"sweep {spec.name!r} has run with another space: {error}") from error
    recorder.apply(Noted("space", "; ".join(changes(stored.space, wanted.space)), at=at))
    recorder.commit()
    return spec
