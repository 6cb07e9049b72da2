"""What the suggester's surrogates have learned of quality, speed and memory, for the report to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core.trial import Trial, TrialState

from .record import Record

if TYPE_CHECKING:
    from automl.suggesters.bayes.model.features import FeatureEncoder
    from automl.suggesters.bayes.model.gp import Ensemble
    from automl.suggesters.bayes.model.transforms import Transform

LEAST: Final = 6  # trials below which nothing is fitted
SPEED_METRICS: Final = (
    "seconds_per_update",
    "seconds_per_step",
    "tokens_per_second",
    "items_per_second",
    "seconds",
)
MEMORY_METRIC: Final = "peak_memory_bytes"


@dataclass(frozen=True)
class Learned:
    """The surrogate of one metric.

    Args:
        metric: its name; aspect: "quality", "speed" or "memory".
        names: the parameters that can reach it.
        encoder, model, transform: as the suggester fits them, of losses (smaller is better).
        trials: those that the model is conditioned on, in its order.
        sign: of the loss; log: whether the loss is that of the logarithm.
    """

    metric: str
    aspect: str
    names: tuple[str, ...]
    encoder: FeatureEncoder
    model: Ensemble
    transform: Transform
    trials: Sequence[Trial]
    sign: float
    log: bool

    def values(self, transformed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the metric, of what the model predicts."""
        raw = self.sign * self.transform.inverse(transformed)
        return np.asarray(np.exp(np.clip(raw, -700, 700)) if self.log else raw, dtype=np.float64)


def learn(record: Record) -> list[Learned]:
    """The surrogates of every goal, of speed and of memory, each where at least six trials tell of it."""
    found = []
    aspects: set[str] = set()
    for index, goal in enumerate(record.snapshot.goals):
        aspect = aspect_of(goal.metric)
        aspects.add(aspect)
        scored = [
            (trial, record.value(trial, index)) for trial in record.trials if trial.state.finished
        ]
        one = _fit(
            record,
            goal.metric,
            aspect,
            scored,
            maximize=goal.maximize,
            within=goal.within is not None,
        )
        found.append(one)
    for aspect, metrics in (("speed", SPEED_METRICS), ("memory", (MEMORY_METRIC,))):
        if aspect not in aspects:
            found.append(_first(record, aspect, metrics))
    return [one for one in found if one is not None]


def aspect_of(metric: str) -> str:
    """Whether a metric tells of quality, speed or memory."""
    from automl.suggesters.bayes.model import aspects

    return next(iter(aspects.of_metric(metric)))


def _first(record: Record, aspect: str, metrics: Sequence[str]) -> Learned | None:
    """The surrogate of the first metric that enough trials have reported."""
    ended = [t for t in record.trials if t.state in (TrialState.COMPLETED, TrialState.STOPPED)]
    for metric in metrics:
        values = [(trial, trial.metrics.get(metric)) for trial in ended]
        one = _fit(record, metric, aspect, values, maximize=metric.endswith("per_second"))
        if one is not None:
            return one
    return None


def _fit(
    record: Record,
    metric: str,
    aspect: str,
    values: Sequence[tuple[Trial, float | None]],
    *,
    maximize: bool,
    within: bool = False,
) -> Learned | None:
    from automl.suggesters.bayes.model import aspects
    from automl.suggesters.bayes.model.fit import GPFitter
    from automl.suggesters.bayes.model.transforms import Transform
    from automl.suggesters.bayes.suggester import one_thread

    space, sign = record.space, -1.0 if maximize else 1.0
    told = [
        (t, v) for t, v in values if v is not None and math.isfinite(v) and space.legal(t.params)
    ]
    if len(told) < LEAST or len({value for _, value in told}) < 2:
        return None
    log = aspect != "quality" and all(value > 0 for _, value in told)
    scale: Callable[[float], float] = math.log if log else float
    losses = np.array([sign * scale(value) for _, value in told])
    transform = Transform.fit(losses)
    measured = aspects.of_metric(metric, within)
    fitter = GPFitter.of_aspects(space, measured, record.spec.seed, goal=not log)
    with one_thread():
        model, rows = fitter.fit(
            space.encode([trial.params for trial, _ in told]), transform(losses)
        )
    names = aspects.parameters(space, measured)
    trials = [told[row][0] for row in rows]
    return Learned(metric, aspect, names, fitter.encoder, model, transform, trials, sign, log)
