"""The suggester's surrogate models of quality, speed and memory, for the report to show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core import Trial, TrialState
from automl.core.metrics import PEAK_MEMORY, SECONDS, warmup
from automl.core.replicates import runs
from workers.protocol import Metric, Params

from .plotting import escape
from .record import Record

if TYPE_CHECKING:
    from torch import Tensor

    from automl.suggesters.bayes.kernel import Encoder
    from automl.suggesters.bayes.model import EnsembleGP, Knee

MAX_VALUE: Final = 1e150  # the square of a greater value overflows
NUM_DRAWS: Final = 200  # of each member of the ensemble
MIN_TRIALS: Final = 6  # with a value of the metric, for a model of it
Values = Sequence[tuple[Trial, float | None]]


@dataclass(frozen=True)
class MetricModel:
    """The surrogate model of one metric.

    Args:
        metric: its name; aspect: "quality", "speed" or "memory".
        names: of the parameters that affect it.
        encoder, ensemble, transform: as the suggester fits them, of losses (smaller is better).
        trials: the first of each configuration that the model is conditioned on, in its order.
        sign: of the loss; log: whether the loss is of the logarithm of the metric.
        repeated: whether a configuration has run more than once, which measures the noise.
    """

    metric: str
    aspect: str
    names: tuple[str, ...]
    encoder: Encoder
    ensemble: EnsembleGP
    transform: Knee
    trials: Sequence[Trial]
    sign: float
    log: bool
    repeated: bool

    def values(self, transformed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the metric from predictions of the ensemble."""
        raw = self.sign * self.transform.inverse(transformed)
        return np.asarray(np.exp(np.clip(raw, -700, 700)) if self.log else raw, dtype=np.float64)

    def another_run(self, unit: NDArray[np.float64]) -> tuple[float, float, float]:
        """The 5%, 50% and 95% quantiles of the metric in another run of a configuration, `1 x d`.

        They hold the noise of a run.
        """
        mean, variance = self._predict(unit)
        return self._quantiles(mean, variance + self._noise)

    def expected(self, unit: NDArray[np.float64]) -> float:
        """The median of the metric's mean over runs of a configuration, `1 x d`."""
        return self._quantiles(*self._predict(unit))[1]

    def interval(self, unit: NDArray[np.float64], params: Params) -> tuple[float, float]:
        """The 5% and 95% quantiles of the metric's mean over runs of a configuration.

        If nothing has run twice, noise and a rough surface look alike. Two beliefs then have the
        same weight: the model's, and that its run was luck and only the others tell its mean.

        Args:
            unit: the configuration, `1 x d`; params: the same as parameters.
        """
        mean, variance = self._predict(unit)
        for row, trial in enumerate(self.trials):
            if trial.params == params and not self.repeated:
                import torch

                others, spread = (found[:, row] for found in self.ensemble.leave_one_out())
                noise = self._noise
                mean = torch.cat([mean, others])
                variance = torch.cat([variance, (spread - noise).clamp(min=0.0)])
        low, _, high = self._quantiles(mean, variance)
        return low, high

    def _predict(self, unit: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the loss without noise, for each ensemble member."""
        mean, variance = self.ensemble.moments(self.encoder(unit))
        return mean[:, 0], variance[:, 0]

    @property
    def _noise(self) -> Tensor:
        """Variance of the noise of a run, for each ensemble member."""
        return self.ensemble.kernel.noise.detach()[:, 0]

    def _quantiles(self, mean: Tensor, variance: Tensor) -> tuple[float, float, float]:
        """Quantiles of the metric if the loss is one of these normals, each as likely."""
        deviation = variance.sqrt().numpy()
        draws = np.random.default_rng(0).standard_normal((NUM_DRAWS, len(deviation)))
        worst = float(self.ensemble.y.max())  # the transform is not valid beyond it
        losses = np.minimum(mean.numpy() + deviation * draws, worst)
        low, middle, high = np.quantile(self.values(losses.reshape(-1)), [0.05, 0.5, 0.95])
        if min(self.observed) >= 0:  # an error or a time is never negative
            low, middle = max(low, 0.0), max(middle, 0.0)
        return float(low), float(middle), float(high)

    @property
    def title(self) -> dict[str, Any]:
        """The title of a figure of this model, for plotly."""
        return {"text": f"{self.aspect}: {escape(self.metric)}", "x": 0.01, "font": {"size": 14}}

    @property
    def observed(self) -> NDArray[np.float64]:
        """Values of the metric in `trials`."""
        return self.values(self.ensemble.y[0].numpy())


def fit_models(record: Record) -> list[MetricModel]:
    """Models of every goal, of speed and of memory, of those with at least six values.

    Trials whose imports cost more than the trial itself are left out of the seconds and the memory.
    """
    found = [fit_goal(record, index) for index in range(len(record.snapshot.goals))]
    modelled = {_main_aspect(goal.aspects) for goal in record.snapshot.goals}
    others = {"speed": record.speed_metrics(), "memory": (PEAK_MEMORY,)}
    found += [_first(record, others[aspect]) for aspect in others if aspect not in modelled]
    return [model for model in found if model is not None]


def fit_goal(record: Record, index: int = 0) -> MetricModel | None:
    """The model of one goal; None with fewer than six values of whole trials.

    A trial that was stopped early says little of what it would have reached.
    """
    goal = record.snapshot.goals[index]
    whole = [trial for trial in record.trials if trial.state is TrialState.COMPLETED]
    values = [(trial, record.value(trial, index)) for trial in whole]
    return _fit(record, goal.metric, goal.aspects, values, maximize=goal.maximize)


def _main_aspect(aspects: frozenset[str]) -> str:
    return next(aspect for aspect in ("quality", "speed", "memory") if aspect in aspects)


def _first(record: Record, metrics: Iterable[Metric]) -> MetricModel | None:
    """The model of the first metric with enough values; stopped trials have rates, but no time."""
    ended = [t for t in record.trials if t.state in (TrialState.COMPLETED, TrialState.STOPPED)]
    for metric in metrics:
        values = [
            (trial, trial.metrics.get(metric.name))
            for trial in ended
            if metric is not SECONDS or trial.state is TrialState.COMPLETED
        ]
        maximize = metric.direction == "maximize"
        model = _fit(record, metric.name, metric.aspects, values, maximize=maximize)
        if model is not None:
            return model
    return None


def _fit(
    record: Record, metric: str, aspects: frozenset[str], values: Values, *, maximize: bool
) -> MetricModel | None:
    space, aspect = record.space, _main_aspect(aspects)
    sign = -1.0 if maximize else 1.0
    known = [
        (t, v)
        for t, v in values
        if v is not None
        and abs(v) < MAX_VALUE
        and space.legal(t.params)
        and warmup(metric, t.details) <= max(v, 0.0)  # 0 for a goal, which may be negative
    ]
    if len(known) < MIN_TRIALS or len({value for _, value in known}) < 2:
        return None
    from automl.suggesters.bayes.kernel import affecting
    from automl.suggesters.bayes.model import Fitter, Knee, Repeated
    from automl.suggesters.bayes.suggester import one_thread

    log = aspect != "quality" and all(value > 0 for _, value in known)
    raw = {t.number: sign * (math.log(value) if log else value) for t, value in known}
    groups = list(runs(trial for trial, _ in known).values())
    each = [np.array([raw[trial.number] for trial in group]) for group in groups]
    losses = np.array([values.mean() for values in each])
    transform = Knee(losses)
    fitter = Fitter.of_aspects(space, aspects, record.spec.seed)
    with one_thread():
        unit = space.encode([group[0].params for group in groups])
        repeated = Repeated.of(each, transform.transform)
        ensemble, rows = fitter.fit(unit, transform.transform(losses), repeated=repeated)
    return MetricModel(
        metric,
        aspect,
        affecting(space, aspects),
        fitter.encoder,
        ensemble,
        transform,
        [groups[row][0] for row in rows],
        sign,
        log,
        repeated is not None,
    )
