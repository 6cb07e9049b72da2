"""Several goals: expected hypervolume improvement of two, summed over pairs of more."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.incumbents import front
from automl.suggesters.bayes.model.posterior import MetricPosterior

from .logei import log_h

MARGIN = 0.1  # least distance of the reference from the front, in the front's extent
MIN_MARGIN = 0.05  # the same in standard deviations of all losses


def reference_point(losses: Array, rows: NDArray[np.intp], distant: bool = True) -> Array:
    """The reference point of the hypervolume, `g`: beyond the front in every goal.

    With a point close to the front, extending the ends of the front would gain nothing (see
    Ishibuchi et al., "How to specify a reference point in hypervolume calculation", 2018). Trials
    that break a constraint count too: they show how far the front may extend.

    Args:
        losses: `n x g` of all trials, transformed, so that outliers are not far.
        rows: of the front.
        distant: whether it is at least the worst of all trials.
    """
    worst, best = losses[rows].max(0), losses[rows].min(0)
    margin = np.maximum(MARGIN * (worst - best), MIN_MARGIN * losses.std(0))
    beyond = worst + np.maximum(margin, 1e-6)
    return np.asarray(np.maximum(losses.max(0), beyond) if distant else beyond)


def expected_hypervolume(
    points: Tensor, reference: Tensor, moments: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Expected hypervolume improvement of two goals, in closed form, `m` (Yang et al., 2019).

    Args:
        points: `k x 2`, losses of the front.
        reference: 2, the reference point.
        moments: for each goal means and standard deviations, `s x m`, averaged over `s` each.
    """
    points = points[torch.argsort(points[:, 0])]
    right = torch.cat([points[:, 0], reference[:1]])  # right ends of the strips
    top = torch.cat([reference[1:], points[:, 1]])  # lowest value reached left of each strip
    width = _mean_shortfall(right, *moments[0])  # (k + 1) x m
    width = width - torch.cat([torch.zeros_like(width[:1]), width[:-1]])
    return (width.clamp(min=0.0) * _mean_shortfall(top, *moments[1])).sum(0)


def _mean_shortfall(thresholds: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """E[max(threshold - y, 0)] of normal y, averaged over the ensemble, `t x m`."""
    z = (thresholds[:, None, None] - mean) / deviation
    return (deviation.log() + log_h(z)).exp().mean(1)


def log_hypervolume_improvement(
    goals: Sequence[MetricPosterior],
    feasible: NDArray[np.bool_],
    unit: Array,
    distant: bool = True,
) -> Tensor:
    """Log expected hypervolume improvement over the predictions at the feasible trials, `m`.

    More than two goals are summed over all pairs.

    Args:
        feasible: `n`, which trials satisfy the constraints.
        unit: `m x d`, candidates.
        distant: see `reference_point`.
    """
    losses, trials = predicted_losses(goals)
    allowed = feasible[trials]
    moments = []
    for goal in goals:
        mean, variance = goal.model.predict(goal.encoder(unit))
        moments.append((mean, variance.sqrt()))
    total = torch.zeros(len(unit), dtype=torch.float64)
    for i, j in itertools.combinations(range(len(goals)), 2):
        pair = losses[:, [i, j]]
        rows = np.flatnonzero(allowed)[front(pair[allowed])]
        reference = torch.from_numpy(reference_point(pair, rows, distant))
        total += expected_hypervolume(
            torch.from_numpy(pair[rows]), reference, [moments[i], moments[j]]
        )
    return total.clamp(min=1e-300).log()


def predicted_losses(goals: Sequence[MetricPosterior]) -> tuple[Array, NDArray[np.intp]]:
    """Posterior means `n x g` (transformed) at the trials that have every goal, and their rows."""
    common = goals[0].rows
    for goal in goals[1:]:
        common = common[np.isin(common, goal.rows)]
    columns = []
    for goal in goals:
        features = goal.model.features[torch.from_numpy(np.searchsorted(goal.rows, common))]
        columns.append(goal.model.predict(features)[0].mean(0).numpy())
    return np.stack(columns, 1), common
