"""A benchmark problem: a space, goals, metrics with and without noise, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from automl.core.goals import Constraint, Goal, parse_constraints, parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from search_spaces import Space
from search_spaces.errors import TrialFailure

Kind = Literal["tabular", "synthetic", "systems"]
Params = Mapping[str, bool | int | float | str]
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Observation:
    """The result of one evaluation: metrics and reports, or a failure."""

    metrics: Metrics = field(default_factory=dict)
    reports: tuple[ReportPoint, ...] = ()
    failure: str | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Problem:
    """One problem.

    Args:
        name: of the problem.
        kind: of the problem.
        space: of its configurations.
        goals: one or two.
        metrics: noiseless metrics of a configuration; raises TrialFailure if it fails.
        noise: absolute standard deviation of the noise of each metric.
        constraints: on the metrics.
        tags: "conditional", "mixed-integer", "noisy", "multi" (several goals), "failing" (about
            half of the space fails, and the optimum is at the boundary), "apart" (metrics come
            apart, and parameters declare what they affect).
        observe: replaces `metrics` and `noise` if an evaluation reports learning curves.
    """

    name: str
    kind: Kind
    space: Space
    goals: tuple[Goal, ...]
    metrics: Callable[[Params], Metrics]
    noise: Metrics = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    tags: frozenset[str] = frozenset()
    observe: Callable[[Params, np.random.Generator], Observation] | None = None

    def evaluate(self, params: Params, rng: np.random.Generator) -> Observation:
        """One noisy evaluation; a failure is a value, never an exception."""
        try:
            if self.observe is not None:
                return self.observe(params, rng)
            clean = self.metrics(params)
        except TrialFailure as failure:
            return Observation(failure=failure.kind)
        noisy = {
            name: value + self.noise.get(name, 0.0) * rng.standard_normal()
            for name, value in clean.items()
        }
        return Observation(noisy)

    def truth(self, params: Params) -> tuple[float, ...] | None:
        """Noiseless loss of each goal; None if the trial fails or breaks a constraint."""
        try:
            clean = self.metrics(params)
        except TrialFailure:
            return None
        if not all(constraint.holds(clean) for constraint in self.constraints):
            return None
        losses = tuple(goal.loss(clean[goal.metric]) for goal in self.goals)
        return losses if all(map(math.isfinite, losses)) else None

    def trial(self, number: int, params: Params, rng: np.random.Generator) -> Trial:
        """An evaluation as a finished trial, for a suggester."""
        seen = self.evaluate(params, rng)
        return Trial(
            number,
            dict(params),
            state=TrialState.FAILED if seen.failure else TrialState.COMPLETED,
            metrics=dict(seen.metrics),
            failure=seen.failure,
            attempts=1,
            reports=seen.reports,
            peak_memory_bytes=seen.peak_memory_bytes,
        )


def problem(
    name: str,
    kind: Kind,
    space: Space,
    goals: str | list[str],
    metrics: Callable[[Params], Metrics | float],
    *,
    noise: float | Metrics = 0.0,
    constraints: str | list[str] = (),  # type: ignore[assignment]
    tags: str = "",
    observe: Callable[[Params, np.random.Generator], Observation] | None = None,
) -> Problem:
    """Make a problem: goals as text, and a number in place of metrics if there is one goal."""
    parsed = parse_goals(goals)

    def named(params: Params) -> Metrics:
        result = metrics(params)
        return result if isinstance(result, Mapping) else {parsed[0].metric: float(result)}

    spread = noise if isinstance(noise, Mapping) else {parsed[0].metric: noise}
    limits = parse_constraints(constraints)
    return Problem(
        name, kind, space, parsed, named, spread, limits, frozenset(tags.split()), observe
    )
