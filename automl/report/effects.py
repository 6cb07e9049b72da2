"""What each parameter does to a metric: partial dependence with its uncertainty, and importance.

The partial dependence of a parameter is the surrogate's value averaged over configurations that were tried, with that
parameter moved (Friedman, "Greedy function approximation", 2001). An average of a Gaussian process over points is
normal in closed form, so curves are drawn from its posterior together with the ensemble of hyperparameters: the band
holds what is not known, not what differs between configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from search_spaces import Choice, Space
from search_spaces.parameters import Parameter

from .learned import Learned, learn
from .record import Record

Array = NDArray[np.float64]
NUM_POINTS: Final = 11
NUM_CONFIGURATIONS: Final = 32
DRAWS: Final = 24  # a hyperparameter vector
MOST_CHOICES: Final = 16


@dataclass(frozen=True)
class Effect:
    """The partial dependence of a metric on one parameter.

    Args:
        name: of the parameter; grid: its values, `g`.
        middle, low, high: median and central 90% of the metric, `g` each.
        importance: draws of how far the parameter moves the metric, as a share of the spread between trials.
    """

    name: str
    grid: Sequence[Any]
    middle: Array
    low: Array
    high: Array
    importance: Array

    @property
    def weight(self) -> float:
        """The importance that is expected."""
        return float(self.importance.mean())


@dataclass(frozen=True)
class Insight:
    """What was learned of one metric: its surrogate, and the effect of each parameter, the strongest first."""

    learned: Learned
    effects: Sequence[Effect]


def study(record: Record) -> list[Insight]:
    """What can be learned from a sweep; empty where too few trials have succeeded."""
    return [Insight(learned, effects(record, learned)) for learned in learn(record)]


def effects(record: Record, learned: Learned) -> list[Effect]:
    """The effect of every parameter that can reach the metric and has more than one value, the strongest first."""
    base = configurations(record)
    rng = np.random.default_rng(record.spec.seed)
    names = [name for name in learned.names if record.space.parameters[name].size != 1]
    found = [_effect(record.space, learned, name, base, rng) for name in names]
    return sorted(found, key=lambda effect: -effect.weight)


def configurations(record: Record) -> list[Mapping[str, Any]]:
    """Configurations to average over: those that were tried, or a random part of them."""
    tried = [dict(trial.params) for trial in record.trials if record.space.legal(trial.params)]
    if len(tried) <= NUM_CONFIGURATIONS:
        return list(tried)
    rows = np.random.default_rng(record.spec.seed).permutation(len(tried))[:NUM_CONFIGURATIONS]
    return [tried[row] for row in sorted(rows)]


def moved(space: Space, params: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The configuration with a parameter at a value; its parents are set so that it exists."""
    changed = {**params, name: value}
    queue = [name]
    while queue:
        for parent, allowed in space.parameters[queue.pop()].when.items():
            if changed.get(parent) not in allowed:
                changed[parent] = allowed[0]
            queue.append(parent)
    return space.complete(changed)


def grid_of(parameter: Parameter, count: int = NUM_POINTS) -> list[Any]:
    """Values across a parameter's range, at most `count` of a number."""
    if isinstance(parameter, Choice):
        return list(parameter.choices[:MOST_CHOICES])
    return list(
        dict.fromkeys(parameter.from_unit(float(unit)) for unit in np.linspace(0.0, 1.0, count))
    )


def _effect(
    space: Space,
    learned: Learned,
    name: str,
    base: Sequence[Mapping[str, Any]],
    rng: np.random.Generator,
) -> Effect:
    grid = grid_of(space.parameters[name])
    rows = [moved(space, params, name, value) for value in grid for params in base]
    means, factors = _averages(learned, space.encode(rows), len(grid))
    noise = rng.standard_normal((len(means), len(grid), DRAWS))
    curves = (means[:, :, None] + factors @ noise).transpose(0, 2, 1).reshape(-1, len(grid))
    low, middle, high = np.quantile(learned.values(curves), [0.05, 0.5, 0.95], axis=0)
    return Effect(name, grid, middle, low, high, curves.std(1))


def _averages(learned: Learned, unit: Array, size: int) -> tuple[Array, Array]:
    """Mean `s x g` of the averages over blocks of `unit`, and a factor `s x g x g` of their covariance."""
    from automl.suggesters.bayes.model.kernel import cross
    from automl.suggesters.bayes.suggester import one_thread

    model = learned.model
    with one_thread():
        features = learned.encoder(unit)
        k = cross(features, model.features, model.hyper, model.prior)
        own = cross(features, features, model.hyper, model.prior)
        s, each = len(model.u), len(unit) // size
        mean = model.predict(features)[0].reshape(s, size, each).mean(2)
        white = (k @ model.whiten.transpose(1, 2)).reshape(s, size, each, -1).mean(2)
        covariance = own.reshape(s, size, each, size, each).mean((2, 4)) - white @ white.transpose(
            1, 2
        )
    values, vectors = np.linalg.eigh(covariance.numpy())
    return mean.numpy(), vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
