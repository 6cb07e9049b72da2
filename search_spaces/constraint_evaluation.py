"""Evaluation of all constraints of a space on many coordinates at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from .conditions import with_ancestors
from .constraint_distance import ConstraintDistance
from .expressions import Expression
from .parameters import Choice, FloatArray, Parameter, RawArray

BoolArray = npt.NDArray[np.bool_]
Activates = Callable[[RawArray], BoolArray]


class ConstraintEvaluator:
    """Distances of coordinates from the constraints of a space.

    Attributes:
        columns: indices of the parameters that a constraint depends on, including their ancestors.
        depends: whether a constraint depends on a column, shape (number of constraints, d).
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], constraints: Sequence[Expression]
    ) -> None:
        self.parameters = list(parameters.values())
        order = {name: j for j, name in enumerate(parameters)}
        self.constraints = [ConstraintDistance(c, parameters) for c in constraints]
        self.depends = np.zeros((len(self.constraints), len(order)), dtype=np.bool_)
        for i, constraint in enumerate(self.constraints):
            for name in with_ancestors(parameters, constraint.names):
                self.depends[i, order[name]] = True
        self.columns: list[int] = np.flatnonzero(self.depends.any(axis=0)).tolist()
        self._conditions = {
            self.parameters[j].name: [
                (parent, _activates(parameters[parent], values))
                for parent, values in self.parameters[j].when.items()
            ]
            for j in self.columns
        }

    def raw(self, units: FloatArray) -> dict[str, RawArray]:
        """`Parameter.raw` of each column in `columns`, for coordinates of shape (n, d)."""
        return {self.parameters[j].name: self.parameters[j].raw(units[:, j]) for j in self.columns}

    def distances(self, raw: dict[str, RawArray]) -> FloatArray:
        """Distance from each constraint, shape (n, number of constraints).

        It is 0 if the constraint holds, or if one of its parameters is inactive.
        """
        count = len(next(iter(raw.values())))
        active: dict[str, BoolArray | None] = {}
        for name, conditions in self._conditions.items():
            active[name] = _active(conditions, raw, active)
        found = np.zeros((count, len(self.constraints)))
        for i, constraint in enumerate(self.constraints):
            found[:, i] = constraint(raw, count)
            for name in constraint.names:
                mask = active[name]
                if mask is not None:
                    found[~mask, i] = 0.0
        return found

    def satisfied(self, units: FloatArray) -> BoolArray:
        """Whether every constraint holds, shape (n,), for coordinates of shape (n, d)."""
        return cast(BoolArray, (self.distances(self.raw(units)) == 0).all(axis=1))


def _activates(parent: Parameter, values: tuple[object, ...]) -> Activates:
    """A function that tests which raw values of a parent activate a child."""
    if isinstance(parent, Choice):
        table = np.array([choice in values for choice in parent.choices])
        return lambda raw: table[raw]
    numbers = np.array(values, dtype=np.float64)
    return lambda raw: np.isin(raw, numbers)


def _active(
    conditions: list[tuple[str, Activates]],
    raw: dict[str, RawArray],
    active: dict[str, BoolArray | None],
) -> BoolArray | None:
    """Mask of rows in which a parameter is active; None if it is active in all."""
    masks = [activates(raw[parent]) for parent, activates in conditions]
    masks += [above for parent, _ in conditions if (above := active[parent]) is not None]
    return np.logical_and.reduce(masks) if masks else None
