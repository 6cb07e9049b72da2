"""Earlier sweeps as terms of a goal's surrogate, with weights that are learned.

    f(x) = sum_i rho_i m_i(x) + g(x),    rho_i normal, integrated out with the trend

m_i is the mean of a surrogate of sweep i, in that sweep's own scale. One earlier sweep gives the
autoregressive model of Kennedy and O'Hagan, "Predicting the output from a complex computer code
when fast approximations are available", 2000. The weight of an unrelated sweep goes to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automl.core import Goal
from automl.suggesters.base import EarlierSweep
from search_spaces import Choice, Float, Int, Space
from search_spaces.parameters import Parameter, Value

from .data import Array
from .features import FeatureEncoder
from .fit import MAX_FITTED, GPFitter, best_and_random
from .gp import Ensemble, Sampling
from .transforms import Transform

RHO = 0.6  # prior mean of the sum of the weights
SPREAD = 0.6  # prior deviation of the sum of the weights
MAP = Sampling(num_particles=1, trajectories=0)  # of an earlier sweep: the mode is enough
MIN_EARLIER = 5  # trials with a value, of a sweep that teaches


class EarlierSweeps:
    """The surrogates of the earlier sweeps that have measured one goal.

    A parameter that an earlier sweep lacks does not change its prediction. A trial with a value
    that is not possible any more is left out.

    Args:
        space: of the present sweep.
        goal: whose metric is compared.
        sweeps: to learn from.
        seed: of the hyperparameters.
    """

    def __init__(self, space: Space, goal: Goal, sweeps: Sequence[EarlierSweep], seed: int) -> None:
        self.space = space
        self.seed = seed
        tables = [_table(space, goal.metric, one) for one in sweeps]
        self._tables = [table for table in tables if len(table.losses) >= MIN_EARLIER]

    def __len__(self) -> int:
        return len(self._tables)

    def trend(self, unit: Array) -> tuple[Array, Array]:
        """Prior mean `n`, and columns `n x k` whose weights have the prior variance 1.

        Args:
            unit: `n x d` configurations.
        """
        if not self._tables:
            return np.zeros(len(unit)), np.empty((len(unit), 0))
        means = [model.mean(encoder(unit)).numpy() for encoder, model in self._models]
        columns = np.stack(means, 1)
        return RHO * columns.mean(1), SPREAD / math.sqrt(columns.shape[1]) * columns

    def best(self) -> Array:
        """`m x d`, the best trial of each sweep in turn, then the second best of each."""
        ranked = [one.unit[np.argsort(one.losses, kind="stable")] for one in self._tables]
        longest = max(map(len, ranked), default=0)
        found = [unit[i] for i in range(longest) for unit in ranked if i < len(unit)]
        return np.array(found).reshape(-1, len(self.space.parameters))

    @cached_property
    def _models(self) -> list[tuple[FeatureEncoder, Ensemble]]:
        return [self._fit(table) for table in self._tables]

    def _fit(self, table: _Table) -> tuple[FeatureEncoder, Ensemble]:
        encoder = FeatureEncoder(self.space, table.shared, goal=True)
        rows = best_and_random(table.losses, MAX_FITTED, self.seed)
        fitter = GPFitter(encoder, encoder.prior(), self.seed, MAP)
        y = Transform.fit(table.losses)(table.losses)
        return encoder, fitter.fit(table.unit[rows], y[rows])[0]


@dataclass(frozen=True)
class _Table:
    """The trials of an earlier sweep that count, and the parameters that it shares."""

    shared: list[str]
    unit: Array
    losses: Array


def _table(space: Space, metric: str, sweep: EarlierSweep) -> _Table:
    names = {name for params in sweep.params for name in params}
    shared = [name for name in space.parameters if name in names]
    rows, kept = [], []
    for params, loss in zip(sweep.params, sweep.losses.get(metric, ()), strict=False):
        row = [_unit(p, params.get(name)) for name, p in space.parameters.items()]
        if shared and math.isfinite(loss) and None not in row:
            rows.append(row)
            kept.append(loss)
    unit = np.array(rows, dtype=np.float64).reshape(len(rows), len(space.parameters))
    return _Table(shared, unit, np.array(kept))


def _unit(parameter: Parameter, value: Value | None) -> float | None:
    """The coordinate of a value, NaN if it has none; None if it is not possible any more."""
    if value is None:
        return math.nan
    if isinstance(parameter, Choice):
        return parameter.to_unit(value) if value in parameter.choices else None
    assert isinstance(parameter, Float | Int)
    known = isinstance(value, int | float) and parameter.low <= value <= parameter.high
    return parameter.to_unit(value) if known else None
