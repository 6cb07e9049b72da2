"""Repair of configurations that violate constraints, and random walks between legal ones."""

from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from .constraint_evaluation import BoolArray, ConstraintEvaluator
from .parameters import FloatArray, Parameter, RawArray

NUM_CANDIDATES: Final = 48
SHRINKS: Final = 50
CHUNK: Final = 1024
_STEPS: Final = 0.5 ** np.arange(1, 19)


@dataclass(frozen=True)
class Walker:
    """Moves many points of the unit cube at once, one parameter at a time.

    Args:
        evaluator: measures the distance from the constraints.
        rng: the source of every random choice.
    """

    evaluator: ConstraintEvaluator
    rng: np.random.Generator

    def repair(
        self, units: FloatArray, rounds: int, held: BoolArray | None = None
    ) -> tuple[FloatArray, BoolArray]:
        """Nearby points that satisfy the constraints.

        Args:
            units: coordinates of shape (n, d) without NaN.
            rounds: at most this many moves per point; a move changes one parameter.
            held: coordinates to keep as long as others can be moved instead, shape (n, d).

        Returns:
            Coordinates of shape (n, d), and whether they satisfy the constraints, shape (n,).
        """
        units = units.copy()
        free = np.ones(units.shape, dtype=np.bool_) if held is None else ~held
        open_rows = np.arange(len(units))
        for left in range(rounds, -1, -1):
            distances = self.evaluator.distances(self.evaluator.raw(units[open_rows]))
            bad = distances.any(axis=1)
            open_rows = open_rows[bad]
            distances = distances[bad]
            if not len(open_rows) or not left:
                break
            for begin in range(0, len(open_rows), CHUNK):
                rows = open_rows[begin : begin + CHUNK]
                units[rows] = self._improved(
                    units[rows], distances[begin : begin + CHUNK], free[rows]
                )
        ok = np.ones(len(units), dtype=np.bool_)
        ok[open_rows] = False
        return units, ok

    def sweep(self, units: FloatArray, held: BoolArray | None = None) -> FloatArray:
        """One sweep of slice sampling by shrinkage over legal points.

        The target is uniform on the legal part of the cube: the first legal coordinate is accepted,
        and the interval, at first [0, 1], shrinks towards the current coordinate at each rejection
        (Neal 2003, Annals of Statistics 31). A parameter may be unable to move alone, for example
        under an equation; then it is sometimes set at random and the others are repaired.

        Args:
            units: legal coordinates of shape (n, d).
            held: coordinates that must not change, shape (n, d).

        Returns:
            Legal coordinates of shape (n, d).
        """
        units = units.copy()
        stuck = np.full(len(units), -1)
        for j in self.rng.permutation(self.evaluator.columns).tolist():
            rows = np.arange(len(units)) if held is None else np.flatnonzero(~held[:, j])
            if len(rows):
                units[rows, j], unmoved = self._slide(units[rows], j)
                stuck[rows[unmoved]] = j
        rows = np.flatnonzero(stuck >= 0)
        if len(rows):
            thrown = units[rows]
            thrown[np.arange(len(rows)), stuck[rows]] = self.rng.random(len(rows))
            thrown, ok = self.repair(thrown, rounds=12, held=None if held is None else held[rows])
            units[rows[ok]] = thrown[ok]
        return units

    def _slide(self, units: FloatArray, j: int) -> tuple[FloatArray, BoolArray]:
        """Move column j of points (n, d) to other legal values.

        Returns:
            The new column, and whether its value is unchanged, both of shape (n,).
        """
        parameter = self.evaluator.parameters[j]
        start = units[:, j].copy()
        before = parameter.raw(start)
        low = np.zeros(len(units))
        high = np.ones(len(units))
        raw = self.evaluator.raw(units)
        waiting = np.arange(len(units))
        for _ in range(SHRINKS):
            units[waiting, j] = low[waiting] + self.rng.random(len(waiting)) * (high - low)[waiting]
            trial = {name: column[waiting] for name, column in raw.items()}
            trial[parameter.name] = parameter.raw(units[waiting, j])
            refused = waiting[self.evaluator.distances(trial).any(axis=1)]
            if not len(refused):
                break
            below = units[refused, j] < start[refused]
            low[refused[below]] = units[refused[below], j]
            high[refused[~below]] = units[refused[~below], j]
            waiting = refused
        else:
            units[waiting, j] = start[waiting]
        unmoved: BoolArray = (parameter.raw(units[:, j]) == before) & (parameter.size != 1)
        return units[:, j], unmoved

    def _improved(self, units: FloatArray, distances: FloatArray, free: BoolArray) -> FloatArray:
        """Set one parameter of a violated constraint to the best of several values.

        Ties are broken at random.
        """
        count = len(units)
        chosen = self._choose(distances, free)
        candidates = np.empty((count, NUM_CANDIDATES))
        raw: dict[str, RawArray] = {
            name: np.repeat(column, NUM_CANDIDATES)
            for name, column in self.evaluator.raw(units).items()
        }
        for j in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == j)
            parameter = self.evaluator.parameters[j]
            candidates[rows] = self._candidates(parameter, units[rows, j])
            column = raw[parameter.name].reshape(count, NUM_CANDIDATES)
            column[rows] = parameter.raw(candidates[rows].ravel()).reshape(
                len(rows), NUM_CANDIDATES
            )
        totals = self.evaluator.distances(raw).sum(axis=1).reshape(count, NUM_CANDIDATES)
        best = totals <= totals.min(axis=1, keepdims=True)
        pick = np.argmax(best * self.rng.random(best.shape), axis=1)
        moved = units.copy()
        moved[np.arange(count), chosen] = candidates[np.arange(count), pick]
        return moved

    def _choose(self, distances: FloatArray, free: BoolArray) -> RawArray:
        """For each point, a column of one of its violated constraints; a free one if possible."""
        violated = np.argmax((distances > 0) * self.rng.random(distances.shape), axis=1)
        weights = (free + 1e-6) * self.evaluator.depends[violated] * self.rng.random(free.shape)
        return cast(RawArray, np.argmax(weights, axis=1))

    def _candidates(self, parameter: Parameter, units: FloatArray) -> FloatArray:
        """Coordinates to try, shape (n, candidates).

        All values of a short list, else some near and some far ones.
        """
        count = len(units)
        size = parameter.size
        if size is not None and size <= NUM_CANDIDATES:
            listed = parameter.to_units(parameter.values())
            return np.tile(np.resize(listed, NUM_CANDIDATES), (count, 1))
        found = np.tile(units[:, None], (1, NUM_CANDIDATES))
        steps = _STEPS * self.rng.uniform(0.5, 1.0, size=(count, len(_STEPS)))
        found[:, :2] = (0.0, 1.0)
        found[:, 2:8] = self.rng.random((count, 6))
        if size is not None:  # neighbouring integers, which halved steps may miss
            found[:, 8:12] += np.array([-2.0, -1.0, 1.0, 2.0]) / size
        found[:, 12:30] += steps
        found[:, 30:48] -= steps
        return np.clip(found, 0.0, 1.0)
