"""What a sweep does with another space when it is resumed, and that it keeps its goals."""

from dataclasses import replace

from automl.core import SweepSpec
from automl.errors import SpaceError, UsageError
from search_spaces.change import changes, joined

from .writer import SweepWriter


def with_known_space(writer: SweepWriter, wanted: SweepSpec) -> SweepSpec:
    """Go on with another specification, which then knows the space of the earlier trials.

    Which value of a trial counts stays as it was when the sweep began.

    If the space has changed, a note of kind "space" says how. The trials stay as they are.

    Args:
        writer: of the sweep.
        wanted: with the space of the trials to come.

    Raises:
        UsageError: the goals are others, a parameter is missing or has another type, or a new one
            has no default.
    """
    stored = writer.spec
    check_goals(stored, wanted)
    spec = replace(
        wanted,
        explored=stored.explored,
        value_rule=stored.value_rule,
        transfer=stored.transfer,
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
        writer.note("space", "; ".join(changes(stored.space, wanted.space)))
    writer.specify(spec)
    return spec


def check_goals(stored: SweepSpec, wanted: SweepSpec) -> None:
    """Raise UsageError if a sweep is to go on with other goals than those it began with."""
    if stored.goals != wanted.goals:
        before, now = ("; ".join(map(str, spec.goals)) for spec in (stored, wanted))
        raise UsageError(
            f"the sweep {stored.name!r} has the goal {before!r}, which it keeps, got {now!r}. Give "
            f"the same goal, or begin a sweep under another name; with the prior "
            f"'sweep:{stored.name}' it learns from these trials"
        )
