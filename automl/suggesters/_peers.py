"""The suggesters of other libraries share this: plain observations, and silence."""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, Trial

from .bayes.data import Array, loss_of

_MAX_VALUE = 1e100  # squares of larger ones overflow


def observations(
    trials: Sequence[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The trials for a suggester that knows only losses and constraint violations.

    Returns:
        losses: `n x g`, smaller is better, finite. A failed trial has the worst seen, or 0.
        violations: `n x c`, positive if a constraint is broken; 1 if the trial failed or the metric
            is unknown.
        failed: `n`, whether the trial ended without a usable result.
    """
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
    return losses, violations, failed


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
