"""Reasons to doubt the result of a sweep, as sentences for the summary and the report."""

from collections.abc import Iterator
from typing import Final

from automl.core import Snapshot, Trial, ranking, text
from automl.core.ranking import deterministic
from search_spaces import Float, Int, Space

EDGE: Final = 0.02  # of a range
MIN_EQUAL: Final = 5  # trials


def caveats(snapshot: Snapshot, space: Space) -> Iterator[str]:
    """The caveats that follow from the trials alone; none if no trial has succeeded."""
    best = snapshot.best
    if best is None:
        return
    yield from _directions(snapshot)
    yield from _at_bounds(best, space)
    yield from _deterministic(snapshot)
    yield from _equal(snapshot)


def _directions(snapshot: Snapshot) -> Iterator[str]:
    """Goals in the opposite direction of the declaration."""
    for goal in snapshot.goals:
        usual = goal.declared.direction if goal.declared else None
        if usual is not None and goal.maximize != (usual == "maximize"):
            better = "higher" if usual == "maximize" else "lower"
            yield f"the goal is '{goal}', but {goal.metric} is declared: {better} is better"


def _at_bounds(best: Trial, space: Space) -> Iterator[str]:
    """Parameters with the best value at the edge of their range."""
    for name, value in best.params.items():
        parameter = space.parameters.get(name)
        if isinstance(parameter, Float | Int) and parameter.size != 1:
            unit = parameter.to_unit(value)
            if unit <= EDGE or unit >= 1 - EDGE:
                bound = text.number(parameter.low if unit < 0.5 else parameter.high)
                shown = f"{name}={text.number(value)}"
                yield f"{shown} is at the edge of its range ({bound}): widen it?"


def _deterministic(snapshot: Snapshot) -> Iterator[str]:
    """Two runs with other seeds that have the same value."""
    if pair := deterministic(snapshot.trials, snapshot.goals[0]):
        first, again = pair
        yield (
            f"trials {first} and {again} have the same {snapshot.goals[0].metric} with different "
            "seeds: it does not depend on the seed, or the seed is ignored, so nothing is repeated"
        )


def _equal(snapshot: Snapshot) -> Iterator[str]:
    """One value of all trials."""
    for goal in snapshot.goals:
        values = [value for t in snapshot.trials if (value := ranking.value(t, goal)) is not None]
        if len(values) >= MIN_EQUAL and len(set(values)) == 1:
            yield (
                f"all {len(values)} trials have the same {goal.metric}, {text.number(values[0])}: "
                "does it depend on the parameters?"
            )
