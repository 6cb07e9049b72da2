"""The suggesters of other libraries share this: plain observations, and silence."""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from automl.core import Constraint, Goal, Trial

from .bayes.data import loss_of

_MAX_VALUE = 1e100  # squares of larger ones overflow


@dataclass(frozen=True)
class PeerObservation:
    """One trial for a suggester that knows only losses and constraint violations.

    Args:
        losses: one a goal, smaller is better, finite. A failed trial has the worst seen of each.
        violations: one a constraint, positive if it is broken; 1 if the trial failed or the
            metric is unknown.
        failed: whether the trial ended without a usable result.
    """

    losses: list[float]
    violations: list[float]
    failed: bool


def observations(
    trials: Sequence[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> list[PeerObservation]:
    """Each trial as losses and violations; a failure counts as the worst loss seen, or 0."""
    found = [[loss_of(trial, goal) for goal in goals] for trial in trials]
    losses = np.array(found).reshape(-1, len(goals)).clip(-_MAX_VALUE, _MAX_VALUE)
    failed = np.isnan(losses).any(1)
    losses[failed] = 0.0 if failed.all() else losses[~failed].max(0)
    excess = [
        [c.excess(trial.metrics.get(c.metric, math.nan)) for c in constraints] for trial in trials
    ]
    violations = np.array(excess).reshape(len(trials), len(constraints))
    violations = np.nan_to_num(violations, nan=1.0).clip(-_MAX_VALUE, _MAX_VALUE)
    violations[failed] = 1.0
    rows = zip(losses.tolist(), violations.tolist(), failed.tolist(), strict=True)
    return [PeerObservation(*row) for row in rows]


@contextlib.contextmanager
def silenced(logger: str, level: int) -> Iterator[None]:
    """Hide warnings, and the messages of a library's logger below a level."""
    library = logging.getLogger(logger)
    before = library.level
    library.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(before)
