"""The knowledge gradient: what a run teaches, of a new configuration or of a known one.

After a run the best expected value among the tried configurations is at least as good, on average,
as before it. That gain counts both for a new configuration, which may be better than all others,
and for a repeated one, which may turn out to be the best or not to be (Frazier et al., "The
knowledge-gradient policy for correlated normal beliefs", 2009). One run alone may be too noisy to
change the choice, so the gain is the largest of 1, 2, 4 and 8 runs, divided by their number
(Frazier and Powell, "Paradoxes in learning and the marginal value of information", 2010).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from automl.core import TrialState
from automl.suggesters.base import Prospect
from automl.suggesters.bayes.model.data import Array, TrialData
from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.kernel import Features, cross

from .acquisition import Acquisition
from .logei import POWER

MAX_DECISIONS = 60  # the best predicted configurations, one of which will be recommended
MAX_REPEATED = 5  # of these, the best that may run again
RUNS = (1.0, 2.0, 4.0, 8.0)
NUM_QUANTILES = 64  # of the observation
NUM_DRAWS = 64  # of the function, from each hyperparameter vector


def prospect(
    acquisition: Acquisition, data: TrialData, unit: Array, others: Array
) -> Prospect | None:
    """What going on promises, and whether a known configuration rather runs again.

    Args:
        acquisition: of the history and what is pending, with one goal.
        data: the history.
        unit: `1 x d`, the new configuration that may run instead; `0 x d` if there is none.
        others: `m x d`, configurations one of which may be the best.

    Returns:
        None if no known configuration is feasible, or if the surrogate is not the ensemble.
    """
    goal = acquisition.posterior.goals[0]
    model, transform = goal.model, goal.transform
    rows = np.flatnonzero(acquisition.posterior.feasible[goal.rows])
    if not isinstance(model, Ensemble) or transform is None or not len(rows):
        return None
    mean = model.mean(model.features[torch.from_numpy(rows)])
    rows = rows[torch.argsort(mean, stable=True)[:MAX_DECISIONS].numpy()]
    trials = [data.trials[row] for row in goal.rows[rows].tolist()]
    done = [i for i, t in enumerate(trials) if t.state is TrialState.COMPLETED][:MAX_REPEATED]
    known = model.features[torch.from_numpy(rows)]
    features = known.with_more(goal.encoder(unit))
    candidates = [*done, *range(len(rows), len(features))]
    repeat = None
    if candidates:
        place = np.concatenate([data.unit[goal.rows[rows[done]]], unit])
        worth = knowledge_gains(model, features, candidates, len(rows))
        chosen = int((worth * _weights(acquisition, place)).argmax())
        repeat = trials[done[chosen]].number if chosen < len(done) else None
    best, variance = model.predict(known[:1])
    error = float((variance.mean() + best.var(correction=0)).sqrt())
    every = features.with_more(goal.encoder(others))
    gain = expected_regret(model, every, torch.Generator().manual_seed(len(data)))
    scale = transform.scale * transform.spread
    return Prospect(gain * scale, error * scale, repeat)


def knowledge_gains(model: Ensemble, features: Features, rows: list[int], tried: int) -> Tensor:
    """Expected improvement of the best mean by a run, for each of some rows.

    Args:
        model: of the goal's transformed loss.
        features: `m`; the first `tried` have run, so that one of them would be recommended now. A
            further one can be recommended once it has run.
        rows: `c`, of the candidates.
    """
    mean, covariance = joint(model, features)
    before = mean[:, :tried].min(1).values  # s
    noise = model.hyper.noise[:, None]
    own = covariance.diagonal(dim1=1, dim2=2)[:, rows]
    quantiles = (torch.arange(NUM_QUANTILES, dtype=torch.float64) + 0.5) / NUM_QUANTILES
    z = torch.special.ndtri(quantiles)
    best = torch.full((len(rows),), -math.inf, dtype=torch.float64)
    for count in RUNS:
        slope = covariance[:, rows] / (own + noise / count).sqrt()[:, :, None]  # s x c x m
        after = mean[:, None, :, None] + slope[:, :, :, None] * z  # s x c x m x q
        lowest = after[:, :, :tried].min(2).values
        itself = after[:, range(len(rows)), rows]
        gain = before[:, None] - torch.minimum(lowest, itself).mean(2)
        total = gain.clamp(min=0.0).pow(POWER).mean(0).pow(1 / POWER) / count
        best = torch.maximum(best, total)
    return best


def expected_regret(model: Ensemble, features: Features, generator: torch.Generator) -> float:
    """How much worse the first of some configurations is than the best of all, on average.

    That is what going on can gain at most, if the best is among them.

    Args:
        model: of the goal's transformed loss.
        features: `m`, first the recommended configuration.
    """
    mean, covariance = joint(model, features)
    covariance.diagonal(dim1=1, dim2=2).add_(1e-6)
    factor, _ = torch.linalg.cholesky_ex(covariance)
    shape = (len(mean), len(features), NUM_DRAWS)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64)
    values = mean[:, :, None] + torch.bmm(factor, draws)
    return float((values[:, 0] - values.min(1).values).mean())


def joint(model: Ensemble, features: Features) -> tuple[Tensor, Tensor]:
    """Means `s x m` and covariances `s x m x m` of the noise-free function."""
    k = cross(features, model.features, model.hyper, model.prior)
    white = torch.bmm(k, model.whiten.transpose(1, 2))
    mean = (k @ model.alpha[:, :, None])[:, :, 0] + features.mean
    own = cross(features, features, model.hyper, model.prior)
    return mean, own - torch.bmm(white, white.transpose(1, 2))


def _weights(acquisition: Acquisition, unit: Array) -> Tensor:
    """What gains are multiplied by, `m`: constraints, success and cost."""
    parts = acquisition.parts(unit)
    return torch.stack([part for name, part in parts.items() if name != "improvement"]).sum(0).exp()
