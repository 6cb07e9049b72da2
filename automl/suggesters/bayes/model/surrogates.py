"""The surrogates of one sweep: one for each goal, each constraint and each kind of failure.

`fit` fits a single one.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from automl.core import Constraint, Goal
from automl.errors import FAILURE_KINDS
from automl.suggesters.base import EarlierSweep
from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

from . import aspects
from .calibration import Calibration, calibrate
from .data import Array, TrialData
from .deadline import DeadlineModel
from .earlier import EarlierSweeps
from .external import Build, ExternalSurrogate
from .failures import FailurePosterior
from .fit import MAX_CONDITIONED, GPFitter, best_and_random, settled
from .incumbents import Incumbents, violations
from .log_gp import NUM_PARTICLES, LogGP
from .metric_posterior import MetricPosterior
from .repeated import Repeated
from .sweep_posterior import SweepPosterior
from .transforms import Transform, excess_scores

MIN_MEASURED = 6  # trials with a measured peak memory
SHARP = (math.log(0.02), 1.0)  # prior of the log noise variance of success labels


class Surrogates:
    """Fits the surrogates of a sweep, each over the parameters that affect its metric.

    Args:
        space: of the configurations.
        goals: at least one.
        constraints: bounds on metrics.
        seed: of everything random.
        build: makes the goals' surrogates instead, see `external`.
        policy: which rules are on.
        earlier: sweeps that the goals' surrogates learn from.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint],
        seed: int,
        build: Build | None = None,
        policy: Policy = ALL_RULES,
        earlier: Sequence[EarlierSweep] = (),
    ) -> None:
        self.goals = goals
        self.constraints = constraints
        self.build = build
        self.policy = policy
        self.incumbents = Incumbents(constraints)
        self.earlier = [EarlierSweeps(space, goal, earlier, seed) for goal in goals]
        self.goal_fitters = [
            GPFitter.of_aspects(
                space,
                goal.aspects,
                seed,
                policy,
                goal=True,
                earlier=known.trend if known and policy.earlier_means else None,
            )
            for goal, known in zip(goals, self.earlier, strict=True)
        ]
        self.deadline = DeadlineModel(space, goals[0], seed, policy)
        self.constraint_fitters = [
            GPFitter.of_aspects(space, c.aspects, seed, policy) for c in constraints
        ]
        self.failure_fitters = {
            kind: GPFitter.of_aspects(
                space, aspects.FAILURES.get(kind, aspects.ALL), seed, policy, noise=SHARP
            )
            for kind in FAILURE_KINDS
        }
        self.memory_fitter = GPFitter.of_aspects(
            space, aspects.MEMORY, seed, policy, num_particles=NUM_PARTICLES
        )

    def possible(self, data: TrialData) -> bool:
        """Whether at least two trials have a value for every goal."""
        return all(int(np.isfinite(data.losses[:, g]).sum()) >= 2 for g in range(len(self.goals)))

    def fit(self, data: TrialData) -> SweepPosterior:
        """The posterior given all of the data."""
        if len(self.goals) == 1 and self.build is None and self.deadline.possible(data):
            goals = [self.deadline.fit(data)]
        else:
            order = np.nan_to_num(data.losses, nan=np.inf).min(1) if len(self.goals) > 1 else None
            goals = [self._goal(f, data, g, order) for g, f in enumerate(self.goal_fitters)]
        constraints = [
            _constraint(fitter, data, data.others[:, i], self.constraints[i])
            for i, fitter in enumerate(self.constraint_fitters)
            if np.isfinite(data.others[:, i]).any()
        ]
        return SweepPosterior(
            goals, constraints, self.failures(data), self.incumbents.feasible(data)
        )

    def failures(self, data: TrialData) -> FailurePosterior:
        """The probability of success, which also exists before there is a surrogate of a goal."""
        return FailurePosterior.fit(
            self.failure_fitters, data.unit, data.kinds, self._quantities(data), data.nodes
        )

    def calibrations(self, data: TrialData) -> list[Calibration]:
        """How well the surrogate of each goal and constraint predicts."""
        posterior = self.fit(data)
        metrics = [goal.metric for goal in self.goals] + [c.metric for c in self.constraints]
        models = [item.model for item in (*posterior.goals, *posterior.constraints)]
        return [calibrate(metric, m) for metric, m in zip(metrics, models, strict=False)]

    def _goal(
        self, fitter: GPFitter, data: TrialData, column: int, order: Array | None
    ) -> MetricPosterior:
        rows = np.flatnonzero(np.isfinite(data.losses[:, column]))
        losses = data.losses[rows, column]
        transform = Transform.fit(settled(losses), self.policy.knee_transform)
        if self.build is not None:
            kept = best_and_random(losses, MAX_CONDITIONED, fitter.seed)
            built = ExternalSurrogate.fit(
                self.build,
                fitter.encoder(data.unit[rows[kept]]),
                torch.from_numpy(transform(losses[kept])),
            )
            return MetricPosterior(fitter.encoder, built, transform, rows[kept])
        order = None if order is None else order[rows]
        runs = [data.runs[row][:, column] for row in rows.tolist()]
        repeated = Repeated.of(runs, transform)
        model, used = fitter.fit(data.unit[rows], transform(losses), order, repeated)
        return MetricPosterior(fitter.encoder, model, transform, rows[used])

    def _quantities(self, data: TrialData) -> dict[str, LogGP]:
        """By kind of failure, the quantity that causes it, if enough trials have measured it."""
        known = np.isfinite(data.memory)
        measured = "out_of_memory" in data.kinds and int(known.sum()) >= MIN_MEASURED
        if not measured or not self.policy.memory_threshold:
            return {}
        memory = LogGP.fit(self.memory_fitter, data.unit[known], data.memory[known])
        return {"out_of_memory": memory} if memory.reliable else {}


def _constraint(
    fitter: GPFitter, data: TrialData, values: Array, constraint: Constraint
) -> MetricPosterior:
    rows = np.flatnonzero(np.isfinite(values))
    excess = violations(values[rows], constraint)
    scores = excess_scores(excess, settled(excess))
    model, used = fitter.fit(data.unit[rows], scores, np.abs(excess))
    return MetricPosterior(fitter.encoder, model, None, rows[used])
