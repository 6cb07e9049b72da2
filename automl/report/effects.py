"""The effect of each parameter on a metric: partial dependence, its uncertainty, importance.

Partial dependence is the mean prediction over tried configurations, with one parameter changed
(Friedman, "Greedy function approximation", 2001). A mean of a Gaussian process over points is
normal in closed form. Curves are drawn from this posterior, for each member of the ensemble. The
band shows the uncertainty of the mean, not how configurations differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from search_spaces import Choice, Parameter, Space

from .metric_models import MetricModel, fit_models
from .record import Record

if TYPE_CHECKING:
    from .calibration import Calibration

Array = NDArray[np.float64]
NUM_POINTS: Final = 11
NUM_CONFIGURATIONS: Final = 32
DRAWS: Final = 24  # per member of the ensemble
MAX_CHOICES: Final = 16


@dataclass(frozen=True)
class Effect:
    """The partial dependence of a metric on one parameter.

    Args:
        name: of the parameter; grid: its values, `g`.
        middle, low, high: median and central 90% of the metric, `g` each.
        importance: draws of the standard deviation of the curve; 1 is that of all trials.
    """

    name: str
    grid: Sequence[Any]
    middle: Array
    low: Array
    high: Array
    importance: Array

    @property
    def weight(self) -> float:
        """The expected importance."""
        return float(self.importance.mean())


@dataclass(frozen=True)
class Insight:
    """The model of one metric, and what it says.

    Args:
        calibration: how well the model predicts trials that it has not seen.
        effects: of each parameter, the strongest first; none if the model is not believable.
    """

    model: MetricModel
    calibration: Calibration
    effects: Sequence[Effect]

    @property
    def doubt(self) -> str:
        """Why there are no effects; "" if the model is believable."""
        found = self.calibration
        if found.believable:
            return ""
        return (
            f"the model of {found.metric} does not predict the trials that it has not seen (rank "
            f"correlation {found.rank_correlation:.2f} over {found.count} trials)"
        )


def insights_of(record: Record) -> list[Insight]:
    """The models and effects of each metric; empty if too few trials have succeeded."""
    from .calibration import calibrate

    found = []
    for model in fit_models(record):
        calibration = calibrate(model.metric, model.ensemble)
        shown = effects(record, model) if calibration.believable else []
        found.append(Insight(model, calibration, shown))
    return found


def effects(record: Record, model: MetricModel) -> list[Effect]:
    """The effect of each tuned parameter that affects the metric, the strongest first."""
    base = configurations(record)
    rng = np.random.default_rng(record.spec.seed)
    names = [name for name in model.names if record.space.parameters[name].size != 1]
    found = [_effect(record.space, model, name, base, rng) for name in names]
    return sorted(found, key=lambda effect: -effect.weight)


def configurations(record: Record) -> list[Mapping[str, Any]]:
    """Tried configurations to average over, at most `NUM_CONFIGURATIONS`."""
    tried = [dict(trial.params) for trial in record.trials if record.space.legal(trial.params)]
    if len(tried) <= NUM_CONFIGURATIONS:
        return list(tried)
    rows = np.random.default_rng(record.spec.seed).permutation(len(tried))[:NUM_CONFIGURATIONS]
    return [tried[row] for row in sorted(rows)]


def moved(space: Space, params: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The configuration with a parameter set to a value; its parents are set to activate it."""
    changed = {**params, name: value}
    queue = [name]
    while queue:
        for parent, allowed in space.parameters[queue.pop()].when.items():
            if changed.get(parent) not in allowed:
                changed[parent] = allowed[0]
            queue.append(parent)
    return space.complete(changed)


def grid_of(parameter: Parameter, count: int = NUM_POINTS) -> list[Any]:
    """Values across the range of a parameter, at most `count` if it is a number."""
    if isinstance(parameter, Choice):
        return list(parameter.choices[:MAX_CHOICES])
    return list(
        dict.fromkeys(parameter.from_unit(float(unit)) for unit in np.linspace(0.0, 1.0, count))
    )


def _effect(
    space: Space,
    model: MetricModel,
    name: str,
    base: Sequence[Mapping[str, Any]],
    rng: np.random.Generator,
) -> Effect:
    grid = grid_of(space.parameters[name])
    rows = [moved(space, params, name, value) for value in grid for params in base]
    means, factors = _averages(model, space.encode(rows), len(grid))
    noise = rng.standard_normal((len(means), len(grid), DRAWS))
    curves = (means[:, :, None] + factors @ noise).transpose(0, 2, 1).reshape(-1, len(grid))
    low, middle, high = np.quantile(model.values(curves), [0.05, 0.5, 0.95], axis=0)
    return Effect(name, grid, middle, low, high, curves.std(1))


def _averages(model: MetricModel, unit: Array, size: int) -> tuple[Array, Array]:
    """Mean `s x g` of block averages of `unit`, and a factor `s x g x g` of their covariance."""
    from automl.suggesters.bayes.suggester import one_thread

    gp = model.ensemble
    with one_thread():
        means, covariances = gp.joint(model.encoder(unit))
        each = len(unit) // size
        mean = means.reshape(-1, size, each).mean(2)
        covariance = covariances.reshape(-1, size, each, size, each).mean((2, 4))
    values, vectors = np.linalg.eigh(covariance.numpy())
    return mean.numpy(), vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
