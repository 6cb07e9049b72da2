"""The suggesters of other libraries share this: plain observations, random state, silence."""

import contextlib
import logging
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from automl.core import Constraint, Goal, Trial
from automl.core.ranking import observed

_MAX_VALUE = 1e100


@dataclass(frozen=True)
class PeerObservation:
    """One trial for a suggester that knows only losses and constraint violations.

    Args:
        losses: one a goal, smaller is better, finite. A failed trial has the worst seen of each.
        violations: one a constraint, positive if it is broken; 1 if the trial failed or the
            metric is unknown.
        failed: whether the trial ended without a usable result.
    """

    losses: tuple[float, ...]
    violations: tuple[float, ...]
    failed: bool


def observations(
    trials: Sequence[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> list[PeerObservation]:
    """Each trial as losses and violations; a failure counts as the worst loss seen, or 0.

    If a goal has losses beyond 1e100, all of its losses are divided by the largest magnitude.
    """
    losses = [_losses(trial, goals) for trial in trials]
    good = [item for item in losses if item is not None]
    largest = [max((abs(item[i]) for item in good), default=1.0) for i in range(len(goals))]
    scales = [size if size > _MAX_VALUE else 1.0 for size in largest]
    worst = tuple(
        max((item[i] / scales[i] for item in good), default=0.0) for i in range(len(goals))
    )
    found = []
    for trial, item in zip(trials, losses, strict=True):
        if item is None:
            found.append(PeerObservation(worst, (1.0,) * len(constraints), True))
        else:
            violations = tuple(_violation(trial, constraint) for constraint in constraints)
            scaled = (loss / scale for loss, scale in zip(item, scales, strict=True))
            found.append(PeerObservation(tuple(scaled), violations, False))
    return found


def _losses(trial: Trial, goals: Sequence[Goal]) -> tuple[float, ...] | None:
    """The loss of each goal, the best over the trial's reports; None if any has none."""
    found = [observed(trial, goal) for goal in goals]
    if None in found:
        return None
    return tuple(g.loss(v) for g, v in zip(goals, found, strict=True) if v is not None)


def _violation(trial: Trial, constraint: Constraint) -> float:
    excess = constraint.excess(trial.metrics.get(constraint.metric, math.nan))
    return max(-_MAX_VALUE, min(_MAX_VALUE, excess)) if not math.isnan(excess) else 1.0


@contextlib.contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed `random`, numpy and torch, use one thread in torch, and restore all of it afterwards."""
    import torch

    state = random.getstate()
    numpy_state = np.random.get_state()
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            torch.set_num_threads(1)
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
        torch.set_num_threads(threads)


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
