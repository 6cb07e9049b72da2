"""From which progress on reports say how a trial will end: before it nothing is compared."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState

from ._merit import progress

PACE: Final = 0.75  # of an even pace: trial 0 lags behind it where its reports do not tell yet
BELIEF: Final = 5.0  # how many completed trials that counts as
LEAST: Final = 0.3  # rank correlation with the end, from which on trials are compared
MOST_KEPT: Final = 60  # the newest completed trials
AGAIN: Final = 1.1  # growth of their number, after which the correlation is looked at again
NUM_PLACES: Final = 24  # evenly spaced in the logarithm of progress
Array = NDArray[np.float64]


class Informative:
    """Learns from the trials that went to their end, and from trial 0 while it does, when a report says anything.

    Validation BLEU is near 0 for a part of the training, and a loss may rise before it falls: who is ahead there need
    not be at the end. A report counts from where on the best so far has Spearman's rank correlation of `LEAST` with
    the end. To what completed trials show a belief is added, as if from `BELIEF` more of them: 0 up to where trial 0
    began to improve, 1 from there on.

    Attributes:
        since: progress from which on reports count; infinite while nobody knows.
    """

    def __init__(self, goals: Sequence[Goal]) -> None:
        self._goals = tuple(goals)
        self._ended: deque[tuple[list[float], Array]] = deque(maxlen=MOST_KEPT)
        self._seen: set[int] = set()
        self._next = 1  # so many completed trials, and it is looked again
        self._again = 0  # so many reports of trial 0, and it is
        self._onset = 0.0
        self.since = 0.0

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        ended = trial.state is TrialState.COMPLETED and trial.number not in self._seen
        first = trial.number == 0 and (
            ended or trial.state.finished or len(trial.reports) >= self._again
        )
        if not (first or ended):
            return
        ats, losses = _curve(trial, self._goals)
        if first:
            self._again = math.ceil(len(trial.reports) * AGAIN + 1e-9)
            self._onset = _onset(ats, losses, trial.state.finished)
        if ended:
            self._seen.add(trial.number)
            if len(ats) > 1:
                self._ended.append((ats, np.minimum.accumulate(losses, 0)))
        if first or len(self._seen) >= self._next:
            self._next = math.ceil(len(self._seen) * AGAIN)
            self.since = self._find()

    def _find(self) -> float:
        """The first place after the last one where the correlation is too low."""
        count = len(self._ended)
        if count < 2:
            return self._onset
        low, high = (
            max(min(ats[0] for ats, _ in self._ended), 1e-9),
            max(ats[-1] for ats, _ in self._ended),
        )
        places = sorted(
            {*np.geomspace(low, high, NUM_PLACES).tolist(), min(max(self._onset, low), high)}
        )
        ends = np.array([best[-1] for _, best in self._ended])
        found = 0.0
        for place, following in zip(places, [*places[1:], high], strict=True):
            there = np.array(
                [
                    best[max(bisect_right(ats, place * (1 + 1e-9)) - 1, 0)]
                    for ats, best in self._ended
                ]
            )
            belief = BELIEF if place >= self._onset * (1 - 1e-9) else 0.0
            if (count * _agreement(there, ends) + belief) / (count + BELIEF) < LEAST:
                found = following
        return found * (1 - 1e-9)


def _curve(trial: Trial, goals: Sequence[Goal]) -> tuple[list[float], Array]:
    """Progress at each report from when every goal has a value (`n`), and the newest losses there (`n x g`)."""
    ats: list[float] = []
    last, rows = [math.inf] * len(goals), []
    for point in trial.reports:
        now = [goal.loss(point.metrics.get(goal.metric, math.nan)) for goal in goals]
        last = [new if math.isfinite(new) else old for old, new in zip(last, now, strict=True)]
        if all(map(math.isfinite, last)):
            ats.append(progress(point, goals))
            rows.append(last)
    return ats, np.array(rows).reshape(-1, len(goals))


def _onset(ats: Sequence[float], losses: Array, ended: bool) -> float:
    """The last report before a curve improved in earnest; 0 if it did so from the first on, infinite until it does.

    There it has made less than `PACE` of what an even pace to its newest report would have made, or less than it ever
    was above its best before: a rise, or noise. With several goals the latest, of those that have improved.
    """
    if len(ats) < 2:
        return 0.0
    best = np.minimum.accumulate(losses, 0)
    gain, above = best[0] - best, np.maximum.accumulate(losses - best, 0)
    some = gain[-1] > 0
    begun = (gain >= above)[1:, some].all(1)
    if not some.any() or not begun.any():
        return 0.0 if ended else math.inf
    even = (np.array(ats) - ats[0]) / max(ats[-1] - ats[0], 1e-9)
    lags = np.nonzero((gain < PACE * gain[-1] * even[:, None])[:, some].any(1))[0]
    last = max([int(np.argmax(begun)), *lags.tolist()])
    return float(ats[last]) if last > 0 else 0.0


def _agreement(there: Array, ends: Array) -> float:
    """Spearman's rank correlation, the lowest of the goals that tell the ends apart; 0 where all are alike."""
    found = []
    for one, other in zip(rankdata(there, axis=0).T, rankdata(ends, axis=0).T, strict=True):
        spread = float(one.std() * other.std())
        if other.std() > 0:
            found.append(
                float(np.mean((one - one.mean()) * (other - other.mean()))) / spread
                if spread > 0
                else 0.0
            )
    return min(found, default=0.0)
