"""Several goals: expected hypervolume improvement of two, random scalarisations of more."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.metric_posterior import Belief

from .logei import log_h

MARGIN = 0.1  # of the front's extent: how far beyond its worst point the reference lies, at least
LEAST_MARGIN = 0.05  # of the standard deviation of all losses, likewise


def front(losses: Array) -> NDArray[np.intp]:
    """Rows of `n x g` losses that no other row dominates, the first of equal ones, ascending; O(n k) for k of n."""
    kept: list[int] = []
    for row in np.lexsort(losses.T[::-1]).tolist():  # stable: what dominates a row comes before it
        if not (losses[kept] <= losses[row]).all(1).any():
            kept.append(row)
    return np.sort(np.array(kept, dtype=np.intp))


def reference_point(losses: Array, rows: NDArray[np.intp]) -> Array:
    """The worst of all trials in every goal (transformed, so that an outlier is near), and somewhat beyond the front.

    From a point that is near the front nothing is gained by extending its ends: one that is short stays so (see
    Ishibuchi et al., "How to specify a reference point in hypervolume calculation", 2018).
    """
    worst, best = losses[rows].max(0), losses[rows].min(0)
    margin = np.maximum(MARGIN * (worst - best), LEAST_MARGIN * losses.std(0))
    return np.asarray(np.maximum(losses.max(0), worst + np.maximum(margin, 1e-6)))


def log_expected_shortfall(threshold: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """log E[max(threshold - y, 0)] of normal y, broadcast."""
    return deviation.log() + log_h((threshold - mean) / deviation)


def expected_hypervolume(
    points: Tensor, reference: Tensor, moments: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Expected hypervolume improvement of two goals, in closed form, `m` (Yang et al., 2019).

    Args:
        points: `k x 2` front, losses; reference: 2.
        moments: for each goal means and standard deviations, `s x m`, averaged over `s` goal by goal.
    """
    points = points[torch.argsort(points[:, 0])]
    right = torch.cat([points[:, 0], reference[:1]])  # right ends of the strips
    top = torch.cat([reference[1:], points[:, 1]])  # lowest value reached left of each strip
    width = _mean_shortfall(right, *moments[0])  # (k + 1) x m
    width = width - torch.cat([torch.zeros_like(width[:1]), width[:-1]])
    return (width.clamp(min=0.0) * _mean_shortfall(top, *moments[1])).sum(0)


def _mean_shortfall(thresholds: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return log_expected_shortfall(thresholds[:, None, None], mean, deviation).exp().mean(1)


def log_hypervolume_improvement(
    goals: Sequence[Belief], holds: NDArray[np.bool_], unit: Array
) -> Tensor:
    """Log expected hypervolume improvement over what is predicted at the trials that satisfy the constraints.

    Of more than two goals it is the mean over all pairs of them.
    """
    losses = predicted_losses(goals, holds)
    moments = []
    for goal in goals:
        mean, variance = goal.model.predict(goal.encoder(unit))
        moments.append((mean, variance.sqrt()))
    total = torch.zeros(len(unit), dtype=torch.float64)
    for i, j in itertools.combinations(range(len(goals)), 2):
        pair = losses[:, [i, j]]
        rows = front(pair)
        reference = torch.from_numpy(reference_point(pair, rows))
        total += expected_hypervolume(
            torch.from_numpy(pair[rows]), reference, [moments[i], moments[j]]
        )
    return total.clamp(min=1e-300).log()


def predicted_losses(goals: Sequence[Belief], holds: NDArray[np.bool_]) -> Array:
    """Posterior means `n x g` (transformed) at the trials that satisfy the constraints and have every goal."""
    common = goals[0].rows[holds[goals[0].rows]]
    for goal in goals[1:]:
        common = common[np.isin(common, goal.rows)]
    columns = []
    for goal in goals:
        where = torch.from_numpy(np.searchsorted(goal.rows, common))
        columns.append(goal.model.predict(goal.model.features[where])[0].mean(0).numpy())
    return np.stack(columns, 1)
