"""Batches: many suggestions at once, or some beside very many pending trials.

To condition on each pending trial costs the cube of their number. Here the acquisition is computed
once, and the expected gain of a candidate is multiplied by 1 - rho^2, the variance that is left of
it beside the taken ones (local penalization, after Gonzalez et al., "Batch Bayesian optimization
via local penalization", 2016).
"""

import math
from collections.abc import Hashable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from workers.protocol import Params

from .acquisition.acquisition import Acquisition
from .candidates import CandidateSampler
from .model.data import Array

MIN_LEFT: Final = 1e-12  # part of the variance that is left
POOL: Final = 2000  # least number of candidates, and most pending trials that are avoided


def suggest_batch(
    sampler: CandidateSampler,
    acquisition: Acquisition | None,
    best: Array,
    pending: Array,
    taken: set[Hashable],
    count: int,
    rng: np.random.Generator,
) -> list[Params]:
    """`count` configurations that are new and far from each other.

    They are random, after the user's prior, if there is no acquisition yet.

    Args:
        acquisition: given the history only.
        best: `b x d`, configurations to look around.
        pending: `w x d`, pending configurations.
        taken: keys of known configurations.
    """
    found: list[Params] = []
    if acquisition is not None:
        size = max(POOL, 4 * count)
        near = [sampler.near(rng, best, size // 2, (0.003, 0.3))] if len(best) else []
        pool = np.concatenate([sampler.everywhere(rng, size // 2), *near])
        score = acquisition.sketch()(pool)
        if len(pending) > POOL:
            pending = pending[rng.permutation(len(pending))[:POOL]]
        goal = acquisition.posterior.goals[0]
        length = goal.model.hyper.length.mean(0)[goal.model.prior.z_group]
        z = goal.encoder(np.concatenate([pool, pending])).z / length
        left = log_part_left(z[: len(pool)], z[len(pool) :])
        found = _spread(sampler, pool, score, z[: len(pool)], left, taken, count)
    elif sampler.prior:
        pool = sampler.everywhere(rng, 4 * count, prior_share=1.0)
        alike = torch.zeros(len(pool), dtype=torch.float64)
        found = _spread(sampler, pool, alike, alike[:, None], alike, taken, count)
    if len(found) == count:
        return found
    known = taken | set(map(sampler.space.key, found))
    return found + sampler.domain.new_points(rng, known, count - len(found))


def log_part_left(z: Tensor, others: Tensor) -> Tensor:
    """Log of 1 - rho^2, the part of the variance of `m` configurations that is left beside others.

    rho is the correlation with the nearest of these, in the part of the kernel with all parameters.

    Args:
        z: `m x c`, in lengthscales.
        others: `w x c`.
    """
    if not len(others):
        return torch.zeros(len(z), dtype=torch.float64)
    nearest = torch.cdist(z, others).min(1).values * math.sqrt(5.0)
    rho = (1 + nearest + nearest * nearest / 3) * torch.exp(-nearest)
    return torch.log((1 - rho * rho).clamp(min=MIN_LEFT))


def _spread(
    sampler: CandidateSampler,
    pool: Array,
    score: Tensor,
    z: Tensor,
    left: Tensor,
    taken: set[Hashable],
    count: int,
) -> list[Params]:
    """The best of the pool one after the other, each far from those before it."""
    met = set(taken)
    found: list[Params] = []
    score = score.clone()
    for _ in range(len(pool)):
        i = int((score + left).argmax())
        if len(found) == count or not math.isfinite(float(score[i])):
            break
        score[i] = -math.inf
        params = sampler.domain.first_new(sampler.space.decode(pool[i : i + 1]), met)
        if params is None:
            continue
        met.add(sampler.space.key(params))
        found.append(params)
        left = torch.minimum(left, log_part_left(z, z[i : i + 1]))
    return found
