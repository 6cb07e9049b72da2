"""The surrogates of one sweep: one for each goal, each constraint and each kind of failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from botorch.models.model import Model
from numpy.typing import NDArray
from torch import Tensor

from automl.core import Constraint, Goal
from automl.errors import FAILURE_KINDS
from search_spaces import Space

from .data import Array, TrialData, feasible_rows, violations
from .kernel import ALL, MEMORY, QUALITY, SPEED, Encoder
from .model import EnsembleGP, Fitter, Knee, excess_scores, settled
from .quantities import DeadlineModel, LatentThreshold, LogGP

# The aspects that cause a kind of failure; all aspects for other kinds.
CAUSES = {"out_of_memory": MEMORY, "timeout": SPEED, "non_finite": QUALITY}
SHARP = (math.log(0.02), 1.0)  # prior of the log noise variance of success labels
BLUR = 0.25  # variance of labels beyond the regression's; fitted to the fate of chosen candidates

MakeModel = Callable[[Tensor, Tensor], Model]


@dataclass(frozen=True)
class MetricPosterior:
    """The surrogate of one metric.

    Args:
        encode: coordinates of `m x d` configurations, of the parameters that affect the metric.
        model: of minus the transformed loss of a goal, or of the scores of a constraint.
        transform: that was applied; None for a constraint.
        rows: the trials that the model is conditioned on.
        X: their coordinates, `n x c`; y: their targets, `n`.
        make: fits another kind of model to `X` and `y`; None for ours.
    """

    encode: Callable[[Array], Tensor]
    model: Model
    transform: Knee | None
    rows: NDArray[np.intp]
    X: Tensor
    y: Tensor
    make: MakeModel | None = None

    def with_pending(self, unit: Array) -> MetricPosterior:
        """Condition on pending configurations too, at their predicted values."""
        if not len(unit):
            return self
        Z = self.encode(unit)
        mean, _ = self.moments(Z)
        if self.make is None:
            return replace(self, model=self.model.condition_on_observations(Z, mean))
        X, y = torch.cat([self.X, Z]), torch.cat([self.y, mean.mean(0)])
        return replace(self, model=self.make(X, y[:, None]), X=X, y=y)

    def moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances at `m x c` coordinates, `K x m` each."""
        if isinstance(self.model, EnsembleGP):
            return self.model.moments(Z)
        with torch.no_grad():
            found = self.model.posterior(Z[:, None])
            return found.mean.reshape(len(Z), -1).T, found.variance.reshape(len(Z), -1).T

    def log_feasibility(self, unit: Array) -> Tensor:
        """Log probability that `m` configurations keep the bound, if this is of a constraint."""
        mean, variance = self.moments(self.encode(unit))
        holds = torch.special.log_ndtr(-mean / variance.sqrt())
        return torch.logsumexp(holds, 0) - math.log(len(mean))


class FailureClassifier:
    """Whether one kind of failure stays away: Gaussian process regression on labels +1 and -1.

    The probability of success is that of a positive value. Laplace's approximation with a logistic
    likelihood predicts better, but searches with it were worse.
    """

    def __init__(self, fitter: Fitter, unit: Array, kinds: NDArray[np.str_], kind: str) -> None:
        rows = (kinds == "") | (kinds == kind)
        labels = np.where(kinds[rows] == "", 1.0, -1.0)
        known = settled(labels)
        self.offset = float(known.sum()) / (len(known) + 2.0)  # the shrunken mean
        newest = np.arange(len(labels), 0, -1.0)
        self.encoder = fitter.encoder
        self.model, _ = fitter.fit(unit[rows], labels - self.offset, newest)

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        mean, variance = self.model.moments(self.encoder(unit))
        variance = variance + self.model.kernel.noise.detach() + BLUR
        z = (mean + self.offset) / variance.sqrt()
        return torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))


@dataclass(frozen=True)
class FailurePosterior:
    """The probability that no kind of failure strikes, the kinds being independent.

    Args:
        parts: one model for each kind.
    """

    parts: Sequence[FailureClassifier | LatentThreshold] = ()

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        none = torch.zeros(len(unit), dtype=torch.float64)
        return sum((part.log_probability(unit) for part in self.parts), none)


@dataclass(frozen=True)
class SweepPosterior:
    """All surrogates of a sweep, given its trials.

    Args:
        goals: one for each goal.
        constraints: one for each constraint with data, of how far its bound is exceeded.
        failures: the probability of success.
        feasible: `n`, which trials satisfy every constraint.
    """

    goals: Sequence[MetricPosterior]
    constraints: Sequence[MetricPosterior]
    failures: FailurePosterior
    feasible: NDArray[np.bool_]

    def with_pending(self, unit: Array) -> SweepPosterior:
        """Condition on pending configurations too, at their predicted values."""
        goals = [goal.with_pending(unit) for goal in self.goals]
        return replace(
            self, goals=goals, constraints=[one.with_pending(unit) for one in self.constraints]
        )

    def smoothed(self) -> Array | None:
        """The expected transformed loss of each trial, `n`, infinite without a loss.

        Returns:
            None for several goals.
        """
        if len(self.goals) > 1:
            return None
        first = self.goals[0]
        found = np.full(len(self.feasible), np.inf)
        found[first.rows] = -first.moments(first.X[: len(first.rows)])[0].mean(0).numpy()
        return found


class Surrogates:
    """Fits the surrogates of a sweep, each over the parameters that affect its metric.

    Args:
        make: fits another kind of model of a goal, from coordinates `n x c` and minus the
            transformed losses `n x 1`; None for ours.
        whole: whether the goals' surrogates see every parameter.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint],
        seed: int,
        make: MakeModel | None = None,
        *,
        whole: bool = False,
    ) -> None:
        fitter = partial(Fitter.of_aspects, space, seed=seed)
        self.goals, self.constraints, self.make = goals, constraints, make
        self.goal_fitters = [
            Fitter(Encoder(space), seed) if whole else fitter(goal.aspects) for goal in goals
        ]
        self.deadline = None if whole or make else DeadlineModel(space, goals[0], seed)
        self.constraint_fitters = [
            fitter(constraint.aspects, members=4) for constraint in constraints
        ]
        self.failure_fitters = {
            kind: fitter(CAUSES.get(kind, ALL), noise=SHARP, members=4) for kind in FAILURE_KINDS
        }
        self.memory_fitter = fitter(MEMORY, members=4)  # such quantities hardly vary between runs
        self.cost_fitter = fitter(SPEED, members=4)

    def possible(self, data: TrialData) -> bool:
        """Whether at least two trials have a value for every goal."""
        return bool((np.isfinite(data.losses).sum(0) >= 2).all())

    def fit(self, data: TrialData) -> SweepPosterior:
        """The posterior given all of the data."""
        if len(self.goals) == 1 and self.deadline is not None and self.deadline.possible(data):
            encoder, model, transform, rows = self.deadline.fit(data)
            goals = [MetricPosterior(encoder, model, transform, rows, model.X, model.y[0])]
        else:
            order = np.nan_to_num(data.losses, nan=np.inf).min(1) if len(self.goals) > 1 else None
            goals = [self._goal(f, data, g, order) for g, f in enumerate(self.goal_fitters)]
        feasible = feasible_rows(data, self.constraints)
        return SweepPosterior(goals, self.bounds(data), self.failures(data), feasible)

    def bounds(self, data: TrialData) -> list[MetricPosterior]:
        """One of each constraint with data."""
        known = np.flatnonzero(np.isfinite(data.others).any(0))
        return [self._constraint(i, data) for i in known.tolist()]

    def failures(self, data: TrialData) -> FailurePosterior:
        """The probability of success, which also exists before there is a surrogate of a goal."""
        parts: list[FailureClassifier | LatentThreshold] = []
        good = data.kinds == ""
        for kind in sorted(set(data.kinds.tolist()) - {""}):
            learns = kind == "out_of_memory" and good.any()
            memory = LogGP.reliable(self.memory_fitter, data.unit, data.memory) if learns else None
            parts.append(
                LatentThreshold(memory, data.unit[good], data.unit[data.kinds == kind])
                if memory
                else FailureClassifier(self.failure_fitters[kind], data.unit, data.kinds, kind)
            )
        return FailurePosterior(parts)

    def _goal(
        self, fitter: Fitter, data: TrialData, column: int, order: Array | None
    ) -> MetricPosterior:
        rows = np.flatnonzero(np.isfinite(data.losses[:, column]))
        losses = data.losses[rows, column]
        transform = Knee(settled(losses))
        z = transform(torch.from_numpy(losses))[0].numpy()
        if self.make is not None:
            X, y = fitter.encoder(data.unit[rows]), torch.from_numpy(-z)
            model = self.make(X, y[:, None])
            return MetricPosterior(fitter.encoder, model, transform, rows, X, y, self.make)
        found, used = fitter.fit(data.unit[rows], -z, z if order is None else order[rows])
        return MetricPosterior(fitter.encoder, found, transform, rows[used], found.X, found.y[0])

    def _constraint(self, index: int, data: TrialData) -> MetricPosterior:
        values = data.others[:, index]
        rows = np.flatnonzero(np.isfinite(values))
        excess = violations(values[rows], self.constraints[index])
        scores = excess_scores(excess, settled(excess))
        fitter = self.constraint_fitters[index]
        model, used = fitter.fit(data.unit[rows], scores, np.abs(excess))
        return MetricPosterior(fitter.encoder, model, None, rows[used], model.X, model.y[0])
