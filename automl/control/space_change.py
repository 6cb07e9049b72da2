"""What a sweep does with another space, or another goal, when it is resumed."""

from dataclasses import replace

from automl.core import SweepSpec
from automl.errors import SpaceError, UsageError
from search_spaces.change import changes, joined

from .beginning import check_sweep
from .writer import SweepWriter


def with_known_space(writer: SweepWriter, wanted: SweepSpec) -> SweepSpec:
    """Go on with another specification, which then knows the space of the earlier trials.

    If the space has changed, a note of kind "space" says how. The trials stay as they are.

    Args:
        writer: of the sweep.
        wanted: with the space of the trials to come.

    Raises:
        UsageError: a parameter is missing or has another type, a new one has no default, or a goal
            has another metric or direction.
    """
    stored = writer.spec
    if _directions(stored) != _directions(wanted):
        known, given = (", ".join(map(str, spec.goals)) for spec in (stored, wanted))
        raise UsageError(
            f"sweep {stored.name!r} has the goal {known!r}, got {given!r}: go on with that, "
            "or begin a sweep of another name"
        )
    if wanted.asked is not None:  # what its trials have asked for so far
        wanted = replace(wanted, space=stored.space, asked=stored.asked)
    spec = replace(
        wanted,
        explored=stored.explored,
        learns=stored.learns,
        earlier=stored.earlier,
    )
    if stored.space != wanted.space:
        if writer.trials:
            try:
                tried = [trial.params for trial in writer.trials]
                spec = replace(spec, explored=joined(stored.known_space, wanted.space, tried))
            except SpaceError as error:
                raise UsageError(
                    f"sweep {spec.name!r} has run with another space: {error}"
                ) from error
        check_sweep(spec)
        writer.note("space", "; ".join(changes(stored.space, wanted.space)))
    writer.specify(spec)
    return spec


def _directions(spec: SweepSpec) -> list[tuple[str, bool]]:
    return [(goal.metric, goal.maximize) for goal in spec.goals]
