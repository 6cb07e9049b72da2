"""The warm-up: the progress before which reports do not predict how a trial ends."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from automl.core import Goal, Trial, TrialState

from ._ranking import TrialCurves

MIN_PACE: Final = 0.75  # of an even pace; trial 0 improves more slowly than that during the warm-up
PRIOR_TRIALS: Final = 5.0  # trial 0 counts as much as this many completed trials
MIN_CORRELATION: Final = 0.3  # with the final ranking, for reports to count
MAX_TRIALS: Final = 60  # completed ones that are compared, the newest
REFIT_GROWTH: Final = 1.1  # the warm-up is learned again if the data has grown by this factor
NUM_POINTS: Final = 24  # candidates for the end, evenly spaced in the logarithm of progress
Array = NDArray[np.float64]


class WarmUp:
    """Learns from trial 0, and from completed trials, when reports start to predict the end.

    Validation BLEU is near 0 for a part of the training, and a loss may rise before it falls. Who
    leads during that time need not lead at the end. The warm-up is over if the best values so far
    have a Spearman rank correlation of at least `MIN_CORRELATION` with the final ones. The
    correlation is averaged with a prior of the weight of `PRIOR_TRIALS` trials: 0 before trial 0
    began to improve, 1 after that.

    Args:
        goals: of the sweep.
        end: if given, the user's own value, and nothing is learned.

    Attributes:
        end: progress from which on reports count; infinite until that is known.
    """

    def __init__(self, goals: Sequence[Goal], end: float | None = None) -> None:
        self._goals = tuple(goals)
        self._learns = end is None
        self._ended: deque[tuple[Array, Array]] = deque(maxlen=MAX_TRIALS)
        self._seen: set[int] = set()
        self._next_trials = 1  # learn again at this many completed trials
        self._next_reports = 0  # or at this many reports of trial 0
        self._onset = 0.0
        self.end = 0.0 if end is None else end * (1 - 1e-9)

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        ended = trial.state is TrialState.COMPLETED and trial.number not in self._seen
        first = trial.number == 0 and (
            ended or trial.state.finished or len(trial.reports) >= self._next_reports
        )
        if not self._learns or not (first or ended):
            return
        ats, losses = TrialCurves(trial, self._goals).newest()
        if first:
            self._next_reports = math.ceil(len(trial.reports) * REFIT_GROWTH + 1e-9)
            self._onset = _onset(ats, losses, trial.state.finished)
        if ended:
            self._seen.add(trial.number)
            if len(ats) > 1:
                self._ended.append((ats, np.minimum.accumulate(losses, 0)))
        if first or len(self._seen) >= self._next_trials:
            self._next_trials = math.ceil(len(self._seen) * REFIT_GROWTH)
            self.end = self._find()

    def _find(self) -> float:
        """The first candidate after the last one with too low a correlation."""
        count = len(self._ended)
        if count < 2:
            return self._onset
        low = min(ats[0] for ats, _ in self._ended)
        high = max(ats[-1] for ats, _ in self._ended)
        points = sorted(
            {*np.geomspace(low, high, NUM_POINTS).tolist(), min(max(self._onset, low), high)}
        )
        final = np.array([best[-1] for _, best in self._ended])
        found = 0.0
        for point, following in zip(points, [*points[1:], high], strict=True):
            there = np.array(
                [
                    best[max(bisect_right(ats, point * (1 + 1e-9)) - 1, 0)]
                    for ats, best in self._ended
                ]
            )
            prior = PRIOR_TRIALS if point >= self._onset * (1 - 1e-9) else 0.0
            correlation = count * _rank_correlation(there, final) + prior
            if correlation / (count + PRIOR_TRIALS) < MIN_CORRELATION:
                found = following
        return found * (1 - 1e-9)


def _onset(ats: Array, losses: Array, ended: bool) -> float:
    """The progress of the last report before a curve began to improve steadily.

    At that report the curve has gained less than `MIN_PACE` of the gain of an even pace, or less
    than it once rose above its best. With several goals the latest of those that have improved.

    Returns:
        0 if the curve improves from its first report on; infinite if it has not begun to improve.
    """
    if len(ats) < 2:
        return 0.0
    best = np.minimum.accumulate(losses, 0)
    gain, above = best[0] - best, np.maximum.accumulate(losses - best, 0)
    some = gain[-1] > 0
    improving = (gain >= above)[1:, some].all(1)
    if not some.any() or not improving.any():
        return 0.0 if ended else math.inf
    even = (ats - ats[0]) / max(ats[-1] - ats[0], 1e-9)
    lags = np.nonzero((gain < MIN_PACE * gain[-1] * even[:, None])[:, some].any(1))[0]
    last = max([int(np.argmax(improving)), *lags.tolist()])
    return float(ats[last]) if last > 0 else 0.0


def _rank_correlation(there: Array, final: Array) -> float:
    """Spearman's rank correlation of two `n x g` losses, the lowest of the goals.

    Goals with equal final losses are left out; 0 if none is left.
    """
    ranks = rankdata([there, final], axis=1)
    spread = ranks.std(1)
    both = ((ranks - ranks.mean(1, keepdims=True)).prod(0)).mean(0)
    found = both / np.where(spread.prod(0) > 0, spread.prod(0), 1.0)
    return min(found[spread[1] > 0].tolist(), default=0.0)
