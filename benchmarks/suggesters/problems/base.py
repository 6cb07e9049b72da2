"""What a benchmark problem is: a space, goals, metrics without and with noise, failures."""

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
    """What one evaluation gave: metrics and partial reports, or a failure."""

    metrics: Metrics = field(default_factory=dict)
    reports: tuple[ReportPoint, ...] = ()
    failure: str | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Problem:
    """One black box, or one whose metrics are reported apart.

    Args:
        metrics: noiseless metrics of a configuration; raises TrialFailure where it fails.
        noise: standard deviation of the noise of each metric, absolute.
        observe: replaces `metrics` plus `noise` where an evaluation reports more (learning curves).
        tags: "conditional", "mixed-integer", "failing" (about half of the space fails and the optimum lies at the
            boundary), "noisy", "apart" (metrics reported apart, parameters say what they affect), "multi".
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
        """One noisy evaluation; a failure comes back as a value, never as an exception."""
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
        """Noiseless loss of each goal (smaller is better), None where the trial fails or breaks a constraint."""
        try:
            clean = self.metrics(params)
        except TrialFailure:
            return None
        if not all(constraint.holds(clean) for constraint in self.constraints):
            return None
        losses = tuple(goal.loss(clean[goal.metric]) for goal in self.goals)
        return losses if all(map(math.isfinite, losses)) else None

    def trial(self, number: int, params: Params, rng: np.random.Generator) -> Trial:
        """An evaluation as the finished trial that a suggester sees."""
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
    """A problem as its file writes it: goals as text, one number instead of metrics where there is one goal."""
    parsed = parse_goals(goals)

    def named(params: Params) -> Metrics:
        result = metrics(params)
        return result if isinstance(result, Mapping) else {parsed[0].metric: float(result)}

    spread = noise if isinstance(noise, Mapping) else {parsed[0].metric: noise}
    limits = parse_constraints(constraints)
    return Problem(
        name, kind, space, parsed, named, spread, limits, frozenset(tags.split()), observe
    )
