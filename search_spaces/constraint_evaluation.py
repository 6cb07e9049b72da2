"""Constraints of many configurations at once, straight from their coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .conditions import with_ancestors
from .constraint_distance import ConstraintDistance
from .expressions import Expression
from .parameters import Choice, FloatArray, Parameter, RawArray

BoolArray = npt.NDArray[np.bool_]


class ConstraintEvaluator:
    """Distances of coordinates from the constraints of a space.

    Attributes:
        columns: which columns the constraints reach, parents counted in.
        reach: whether a constraint reaches a column, shape (number of constraints, d).
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], constraints: Sequence[Expression]
    ) -> None:
        self.parameters = list(parameters.values())
        order = {name: j for j, name in enumerate(parameters)}
        self.violations = [ConstraintDistance(constraint, parameters) for constraint in constraints]
        self.reach = np.zeros((len(self.violations), len(order)), dtype=np.bool_)
        for i, violation in enumerate(self.violations):
            self.reach[i, [order[name] for name in with_ancestors(parameters, violation.names)]] = (
                True
            )
        self.columns: list[int] = np.flatnonzero(self.reach.any(axis=0)).tolist()
        self._conditions = {
            self.parameters[j].name: [
                (parent, _Allowed(parameters[parent], values))
                for parent, values in self.parameters[j].when.items()
            ]
            for j in self.columns
        }

    def raw(self, units: FloatArray) -> dict[str, RawArray]:
        """What `Parameter.raw` has for the columns that matter, of coordinates of shape (n, d)."""
        return {self.parameters[j].name: self.parameters[j].raw(units[:, j]) for j in self.columns}

    def distances(self, raw: dict[str, RawArray]) -> FloatArray:
        """Distance from each constraint, shape (n, number of constraints); 0 where one holds or does not apply."""
        count = len(next(iter(raw.values())))
        active: dict[str, BoolArray | None] = {}
        for name, conditions in self._conditions.items():
            active[name] = _active(conditions, raw, active)
        found = np.zeros((count, len(self.violations)))
        for i, violation in enumerate(self.violations):
            found[:, i] = violation(raw, count)
            for name in violation.names:
                mask = active[name]
                if mask is not None:
                    found[~mask, i] = 0.0
        return found

    def satisfied(self, units: FloatArray) -> BoolArray:
        """Whether every constraint holds, shape (n,), of coordinates of shape (n, d)."""
        ok: BoolArray = (self.distances(self.raw(units)) == 0).all(axis=1)
        return ok


class _Allowed:
    """Whether values of a parent switch a child on."""

    def __init__(self, parent: Parameter, values: tuple[object, ...]) -> None:
        self.table: BoolArray | None = None
        if isinstance(parent, Choice):
            self.table = np.array([choice in values for choice in parent.choices])
        else:
            self.numbers = np.array(values, dtype=np.float64)

    def __call__(self, raw: RawArray) -> BoolArray:
        on: BoolArray = self.table[raw] if self.table is not None else np.isin(raw, self.numbers)
        return on


def _active(
    conditions: list[tuple[str, _Allowed]],
    raw: dict[str, RawArray],
    active: dict[str, BoolArray | None],
) -> BoolArray | None:
    """Where a parameter is active; None for everywhere."""
    masks = [allowed(raw[parent]) for parent, allowed in conditions]
    masks += [above for parent, _ in conditions if (above := active[parent]) is not None]
    return np.logical_and.reduce(masks) if masks else None
