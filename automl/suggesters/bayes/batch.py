"""Many suggestions at once, or beside very many pending trials: one look at the acquisition, then far from each other.

To condition on each pending trial costs the cube of their number. Here a candidate near one that is taken loses what
that one will tell: its expected gain is multiplied by 1 - rho^2, the variance that is left (local penalisation, after
Gonzalez et al., "Batch Bayesian optimization via local penalization", 2016).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from automl.suggesters._draws import new_points
from search_spaces import Space
from workers.protocol import Params

from .candidates import Lattice
from .model.data import Array
from .model.features import Encoder
from .model.gp import Ensemble
from .model.sweep_posterior import Beliefs

MANY: Final = 8  # suggestions at once
MOST_PENDING: Final = 200  # that are conditioned on
MOST_AVOIDED: Final = 2000  # of the pending trials, drawn at random
LEFT: Final = 1e-12  # of the variance, where a candidate is taken already
POOL: Final = 2000


def in_bulk(
    lattice: Lattice,
    beliefs: Beliefs | None,
    best: Array,
    ahead: Array,
    taken: set[Hashable],
    count: int,
    rng: np.random.Generator,
) -> list[Params]:
    """`count` legal configurations that are not `taken`; drawn at random before anything is believed.

    Args:
        beliefs: of the history alone; best: `b x d`, worth looking around; ahead: `w x d`, pending configurations.
    """
    space = lattice.space
    if beliefs is None:
        return new_points(space, rng, taken, count)
    size = max(POOL, 4 * count)
    local = [lattice.near(rng, best, size // 2, (0.003, 0.3))] if len(best) else []
    pool = np.concatenate([lattice.everywhere(rng, size // 2), *local])
    score = beliefs.sketch().score(pool)
    some = (
        ahead if len(ahead) <= MOST_AVOIDED else ahead[rng.permutation(len(ahead))[:MOST_AVOIDED]]
    )
    found = _spread(space, pool, score, Nearness(lattice, beliefs), some, taken, count)
    rest = count - len(found)
    return found + (
        new_points(space, rng, taken | set(map(space.key, found)), rest) if rest else []
    )


class Nearness:
    """rho^2 of configurations: of the part of the first goal's covariance that is about all parameters together."""

    def __init__(self, lattice: Lattice, beliefs: Beliefs) -> None:
        goal = beliefs.goals[0]
        self._encoder = Encoder(lattice.space)
        self._length = torch.full(
            (1,), 0.5 * math.sqrt(max(lattice.num_parameters, 1)), dtype=torch.float64
        )
        if isinstance(goal.model, Ensemble) and isinstance(goal.encoder, Encoder):
            self._encoder = goal.encoder
            self._length = goal.model.hyper.length.mean(0)[goal.model.prior.z_group]

    def embed(self, unit: Array) -> Tensor:
        """`m x c`, in lengthscales."""
        return self._encoder(unit).z / self._length

    @staticmethod
    def log_left(z: Tensor, others: Tensor) -> Tensor:
        """Log of the variance that is left of `m` configurations beside the nearest of some others."""
        nearest = torch.cdist(z, others).min(1).values * math.sqrt(5.0)
        rho = (1 + nearest + nearest * nearest / 3) * torch.exp(-nearest)
        return torch.log((1 - rho * rho).clamp(min=LEFT))


def _spread(
    space: Space,
    pool: Array,
    score: Tensor,
    near: Nearness,
    ahead: Array,
    taken: set[Hashable],
    count: int,
) -> list[Params]:
    """The best of the pool one after the other, each far from those before it."""
    z = near.embed(pool)
    left = (
        near.log_left(z, near.embed(ahead))
        if len(ahead)
        else torch.zeros(len(pool), dtype=torch.float64)
    )
    met, found = set(taken), list[Params]()
    score = score.clone()
    for _ in range(len(pool)):
        i = int((score + left).argmax())
        if len(found) == count or not math.isfinite(float(score[i])):
            break
        score[i] = -math.inf
        params = space.decode(pool[i : i + 1])[0]
        key = space.key(params)
        if key in met or not space.legal(params):
            continue
        met.add(key)
        found.append(params)
        left = torch.minimum(left, near.log_left(z, z[i : i + 1]))
    return found
