"""The surrogates of one sweep: one for each goal, each constraint and each kind of failure.

`fit` fits a single one.
"""

import math
from collections.abc import Sequence

import numpy as np

from automl.core import Constraint, Goal
from automl.errors import FAILURE_KINDS
from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

from . import aspects
from .data import Array, TrialData
from .deadline import DeadlineModel
from .failures import FailureClassifier, FailurePosterior
from .fit import GPFitter, settled
from .incumbents import Incumbents, violations
from .latent_threshold import LatentThreshold
from .log_gp import LogGP
from .posterior import MetricPosterior, SweepPosterior
from .repeated import Repeated
from .transforms import Transform, excess_scores

SHARP = (math.log(0.02), 1.0)  # prior of the log noise variance of success labels


class Surrogates:
    """Fits the surrogates of a sweep, each over the parameters that affect its metric."""

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint],
        seed: int,
        policy: Policy = ALL_RULES,
    ) -> None:
        self.goals = goals
        self.constraints = constraints
        self.policy = policy
        self.incumbents = Incumbents(constraints)
        self.goal_fitters = [
            GPFitter.of_aspects(space, goal.aspects, seed, policy, goal=True) for goal in goals
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
        self.memory_fitter = LogGP.fitter(space, aspects.MEMORY, seed, policy)

    def possible(self, data: TrialData) -> bool:
        """Whether at least two trials have a value for every goal."""
        return all(int(np.isfinite(data.losses[:, g]).sum()) >= 2 for g in range(len(self.goals)))

    def fit(self, data: TrialData) -> SweepPosterior:
        """The posterior given all of the data."""
        if len(self.goals) == 1 and self.deadline.possible(data):
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
        parts: list[FailureClassifier | LatentThreshold] = []
        succeeded = data.kinds == ""
        for kind in sorted(set(data.kinds.tolist()) - {""}):
            failed = data.kinds == kind
            memory = self._memory(data) if kind == "out_of_memory" and succeeded.any() else None
            if memory is None:
                fitter = self.failure_fitters[kind]
                parts.append(FailureClassifier.fit(fitter, data.unit, data.kinds, kind))
                continue
            nodes = [data.nodes == name for name in np.unique(data.nodes)]
            groups = [
                (float(on.mean()), data.unit[on & succeeded], data.unit[on & failed])
                for on in nodes
            ]
            parts.append(LatentThreshold.fit(memory, groups))
        return FailurePosterior(parts)

    def _goal(
        self, fitter: GPFitter, data: TrialData, column: int, order: Array | None
    ) -> MetricPosterior:
        rows = np.flatnonzero(np.isfinite(data.losses[:, column]))
        losses = data.losses[rows, column]
        transform = Transform.fit(settled(losses), self.policy.knee_transform)
        order = None if order is None else order[rows]
        runs = [data.runs[row][:, column] for row in rows.tolist()]
        repeated = Repeated.of(runs, transform)
        model, used = fitter.fit(data.unit[rows], transform(losses), order, repeated)
        return MetricPosterior(fitter.encoder, model, transform, rows[used])

    def _memory(self, data: TrialData) -> LogGP | None:
        """The memory that a trial needs, if enough trials have measured it."""
        if not self.policy.memory_threshold:
            return None
        return LogGP.reliable(self.memory_fitter, data.unit, data.memory)


def _constraint(
    fitter: GPFitter, data: TrialData, values: Array, constraint: Constraint
) -> MetricPosterior:
    rows = np.flatnonzero(np.isfinite(values))
    excess = violations(values[rows], constraint)
    scores = excess_scores(excess, settled(excess))
    model, used = fitter.fit(data.unit[rows], scores, np.abs(excess))
    return MetricPosterior(fitter.encoder, model, None, rows[used])
