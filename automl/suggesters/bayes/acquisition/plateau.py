"""Plateaus: trials with exactly the best loss. A candidate close to them would only be one more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from automl.suggesters.bayes.batch import RemainingVariance
from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.bayes.model.data import Array, TrialData
from automl.suggesters.bayes.model.posterior import SweepPosterior


def plateau_term(
    sampler: CandidateSampler, posterior: SweepPosterior, data: TrialData
) -> Callable[[Array], Tensor] | None:
    """Log of the gain that is left beside k tied trials, (1 - rho^2)^(k - 1); None if k < 2.

    rho is the correlation with the nearest of them. So the distance grows with their number.
    """
    losses = np.where(posterior.feasible, data.losses[:, 0], np.nan)
    if not np.isfinite(losses).any():
        return None
    tied = losses == np.nanmin(losses)
    count = int(tied.sum())
    if count < 2:
        return None
    remaining = RemainingVariance(sampler, posterior)
    known = remaining.embed(data.unit[tied])
    return lambda unit: (count - 1) * remaining.log_part(remaining.embed(unit), known)
