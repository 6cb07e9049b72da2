"""The surrogates of one suggester: one a goal, a constraint and a kind of failure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from automl.core.goals import Constraint, Goal
from automl.errors import FAILURE_KINDS
from automl.suggesters.bayes.acquisition.feasibility import Feasibility
from automl.suggesters.bayes.acquisition.hypervolume import front
from search_spaces import Space

from . import aspects as reach
from .calibration import Calibration, calibrate
from .data import Array, Data
from .deadline import Deadline
from .external import Build, External
from .features import Encoder
from .fit import MOST_CONDITIONED, THOROUGH, Fitter, best_and_random, settled
from .gp import Sampling
from .log_gp import NEARLY_EXACT, Quantity, exact_fitter
from .metric_posterior import Belief
from .sweep_posterior import Beliefs
from .transforms import Transform, excess_scores

NUM_BEST = 10
NUM_INCUMBENTS = 10
LEAST_MEASURED = 6
SHARP = (math.log(0.02), 1.0)  # prior of the logarithm of the labels' noise
NO_PROGRESS = 0.03  # of the distance from the median to the best loss


class Surrogates:
    """Fits everything that is believed, each surrogate over the parameters that can reach its metric.

    Args:
        space, goals, constraints, seed: of the suggester; build: makes the goals' surrogates, see `external`.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint],
        seed: int,
        build: Build | None = None,
    ) -> None:
        self.goals, self.constraints, self.build = goals, constraints, build
        self.goal_fitters = [fitter_of(space, goal.aspects, seed, bowl=True) for goal in goals]
        self.deadline = Deadline(space, goals[0], seed)
        self.limit_fitters = [fitter_of(space, c.aspects, seed) for c in constraints]
        self.failure_fitters = {
            kind: fitter_of(space, reach.of_failure(kind), seed, noise=SHARP)
            for kind in FAILURE_KINDS
        }
        self.memory_fitter = exact_fitter(space, reach.MEMORY, seed)

    def possible(self, data: Data) -> bool:
        """Whether every goal has been reached by at least two trials."""
        return all(int(np.isfinite(data.losses[:, g]).sum()) >= 2 for g in range(len(self.goals)))

    def fit(self, data: Data) -> Beliefs:
        """Beliefs given all of the data."""
        if len(self.goals) == 1 and self.build is None and self.deadline.possible(data):
            goals = [self.deadline.fit(data)]
        else:
            order = np.nan_to_num(data.losses, nan=np.inf).min(1) if len(self.goals) > 1 else None
            goals = [self._goal(f, data, g, order) for g, f in enumerate(self.goal_fitters)]
        limits = [
            _limit(f, data, data.others[:, i], c)
            for i, (f, c) in enumerate(zip(self.limit_fitters, self.constraints, strict=True))
            if np.isfinite(data.others[:, i]).any()
        ]
        return Beliefs(goals, limits, self.feasibility(data), self.holds(data))

    def _goal(self, fitter: Fitter, data: Data, column: int, order: Array | None) -> Belief:
        rows = np.flatnonzero(np.isfinite(data.losses[:, column]))
        losses = data.losses[rows, column]
        transform = Transform.fit(settled(losses))
        if self.build is not None:
            kept = best_and_random(losses, MOST_CONDITIONED, fitter.seed)
            y = torch.from_numpy(transform(losses[kept]))
            built = External.fit(self.build, fitter.encoder(data.unit[rows[kept]]), y)
            return Belief(fitter.encoder, built, transform, rows[kept])
        model, used = fitter.fit(
            data.unit[rows], transform(losses), None if order is None else order[rows]
        )
        return Belief(fitter.encoder, model, transform, rows[used])

    def feasibility(self, data: Data) -> Feasibility:
        """What is believed of the failures."""
        best = data.unit[self.best_rows(data)[:NUM_INCUMBENTS]]
        return Feasibility(self.failure_fitters, data.unit, data.kinds, self._measured(data), best)

    def _measured(self, data: Data) -> dict[str, Quantity]:
        """By kind of failure, the quantity that brings it about, where it is known of enough trials."""
        known = np.isfinite(data.memory)
        if "out_of_memory" not in data.kinds or int(known.sum()) < LEAST_MEASURED:
            return {}
        memory = Quantity.fit(self.memory_fitter, data.unit[known], data.memory[known])
        return {"out_of_memory": memory} if memory.believable else {}

    def holds(self, data: Data) -> NDArray[np.bool_]:
        """`n`, which trials reached every goal and satisfy every constraint."""
        good = np.isfinite(data.losses).all(1)
        for i, constraint in enumerate(self.constraints):
            good &= _excess(data.others[:, i], constraint) <= 0  # false of NaN
        return np.asarray(good, dtype=bool)

    def best_rows(self, data: Data, smoothed: Array | None = None) -> NDArray[np.intp]:
        """Up to ten trials worth looking around: the best that satisfy the constraints, or the front of them, beginning
        with another one after each trial.

        Args:
            smoothed: losses to go by, else those observed; under noise the best of these is luck.
        """
        rows = self._worth(data)
        if len(self.goals) == 1:
            losses = data.losses[:, 0] if smoothed is None else smoothed
            return rows[np.argsort(losses[rows], kind="stable")[:NUM_BEST]]
        return np.roll(rows[front(data.losses[rows])], -len(data))[: 2 * NUM_BEST]

    def _worth(self, data: Data) -> NDArray[np.intp]:
        """Trials that satisfy the constraints; where there are none, all with a value of the first goal."""
        rows = np.flatnonzero(self.holds(data))
        return rows if len(rows) else np.flatnonzero(np.isfinite(data.losses[:, 0]))

    def last_progress(self, data: Data, smoothed: Array | None = None) -> int:
        """The first trial that is as good as the best, but for a small part of their spread; of several goals the
        newest of the front.

        Args:
            smoothed: see `best_rows`; what was lucky is hardly ever beaten.
        """
        if len(self.goals) > 1:
            rows = self._worth(data)
            return int(rows[front(data.losses[rows])].max(initial=-1))
        losses = np.where(
            self.holds(data), data.losses[:, 0] if smoothed is None else smoothed, np.inf
        )
        known = losses[np.isfinite(losses)]
        if not len(known):
            return len(data)
        best = float(known.min())
        return int(np.argmax(losses <= best + NO_PROGRESS * (float(np.median(known)) - best)))

    def calibrations(self, data: Data) -> list[Calibration]:
        """How far the surrogate of each goal and constraint can be believed."""
        beliefs = self.fit(data)
        names = [g.metric for g in self.goals] + [c.metric for c in self.constraints]
        return [
            calibrate(n, b.model)
            for n, b in zip(names, [*beliefs.goals, *beliefs.limits], strict=False)
        ]


def fitter_of(
    space: Space,
    measures: frozenset[str],
    seed: int,
    *,
    noise: tuple[float, float] | None = None,
    bowl: bool = False,
) -> Fitter:
    """The fitter of what measures those aspects, over the parameters that reach them.

    Args:
        noise: prior of the logarithm of the noise variance, else by the aspects; bowl: of a goal, see `Encoder`.
    """
    encoder = Encoder(space, reach.parameters(space, measures), bowl=bowl)
    prior = encoder.prior()
    if noise is None and "quality" not in measures:
        noise = NEARLY_EXACT
    sampling = THOROUGH if bowl else Sampling()
    return Fitter(encoder, prior.with_noise(*noise) if noise else prior, seed, sampling)


def _limit(fitter: Fitter, data: Data, values: Array, constraint: Constraint) -> Belief:
    rows = np.flatnonzero(np.isfinite(values))
    excess = _excess(values[rows], constraint)
    model, used = fitter.fit(
        data.unit[rows], excess_scores(excess, settled(excess)), np.abs(excess)
    )
    return Belief(fitter.encoder, model, None, rows[used])


def _excess(values: Array, constraint: Constraint) -> Array:
    return np.array([constraint.excess(value) for value in values.tolist()], dtype=np.float64)
