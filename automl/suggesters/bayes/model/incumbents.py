"""The incumbents: the best trials so far, beside which the search looks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint

from .data import Array, TrialData

NUM_BEST = 10
NO_PROGRESS = 0.03  # part of the distance from the median to the best loss that is no progress


class Incumbents:
    """Finds the best trials of data.

    Args:
        constraints: bounds on the metrics `TrialData.others`.
    """

    def __init__(self, constraints: Sequence[Constraint] = ()) -> None:
        self._constraints = constraints

    def feasible(self, data: TrialData) -> NDArray[np.bool_]:
        """`n`, which trials have every goal and satisfy every constraint."""
        good = np.isfinite(data.losses).all(1)
        for i, constraint in enumerate(self._constraints):
            good &= violations(data.others[:, i], constraint) <= 0  # false for NaN
        return np.asarray(good, dtype=bool)

    def best_rows(self, data: TrialData, smoothed: Array | None = None) -> NDArray[np.intp]:
        """The ten best feasible trials, the best first; of several goals part of the front.

        The front begins with another trial each time.

        Args:
            smoothed: `n`, losses to use instead of the observed ones, which noise can flatter.
        """
        rows = self._candidates(data)
        if data.losses.shape[1] == 1:
            losses = data.losses[:, 0] if smoothed is None else smoothed
            return rows[np.argsort(losses[rows], kind="stable")[:NUM_BEST]]
        return np.roll(rows[front(data.losses[rows])], -len(data))[: 2 * NUM_BEST]

    def last_progress(self, data: TrialData, smoothed: Array | None = None) -> int:
        """The first trial that is nearly as good as the best; the newest of a front.

        Args:
            smoothed: see `best_rows`.
        """
        if data.losses.shape[1] > 1:
            rows = self._candidates(data)
            return int(rows[front(data.losses[rows])].max(initial=-1))
        losses = data.losses[:, 0] if smoothed is None else smoothed
        losses = np.where(self.feasible(data), losses, np.inf)
        known = losses[np.isfinite(losses)]
        if not len(known):
            return len(data)
        best = float(known.min())
        return int(np.argmax(losses <= best + NO_PROGRESS * (float(np.median(known)) - best)))

    def _candidates(self, data: TrialData) -> NDArray[np.intp]:
        """The feasible trials; all with a value of the first goal if there are none."""
        rows = np.flatnonzero(self.feasible(data))
        return rows if len(rows) else np.flatnonzero(np.isfinite(data.losses[:, 0]))


def front(losses: Array) -> NDArray[np.intp]:
    """Rows of `n x g` losses that no other row dominates, the first of equal ones, ascending.

    O(n k) for a front of k.
    """
    kept: list[int] = []
    for row in np.lexsort(losses.T[::-1]).tolist():  # a row that dominates another precedes it
        if not (losses[kept] <= losses[row]).all(1).any():
            kept.append(row)
    return np.sort(np.array(kept, dtype=np.intp))


def violations(values: Array, constraint: Constraint) -> Array:
    """How far each value exceeds the bound, `n`; NaN for NaN."""
    return np.array([constraint.excess(value) for value in values.tolist()], dtype=np.float64)
