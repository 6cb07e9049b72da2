"""What a trial costs in seconds, weighed against what it may gain, where time is what runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.core.budget import Budget
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes.model import aspects as reach
from automl.suggesters.bayes.model.log_gp import Quantity, exact_fitter
from search_spaces import Space

Array = NDArray[np.float64]
Score = Callable[[Array], Tensor]
LEAST_TRIALS: Final = 5
LEAST_SPREAD: Final = (
    0.1  # standard deviation of the logarithm of seconds below which all trials cost the same
)


class Cost:
    """Seconds of a trial, learned from completed ones.

    The expected gain is divided by the expected seconds to a power that falls from 1 to 0 as the time is spent (Lee et
    al., "Cost-aware Bayesian optimization", 2020): cheap knowledge first, the best at the end. Where trials run out
    before the time does, seconds do not matter.

    Args:
        space, seed: of the suggester; budget: of the sweep.
    """

    def __init__(self, space: Space, budget: Budget, seed: int) -> None:
        self._space, self._budget = space, budget
        self._fitter = exact_fitter(space, reach.SPEED, seed)
        self._seconds: Quantity | None = None
        self.power = 0.0

    def learn(self, history: Sequence[Trial]) -> None:
        """From the trials that have ended."""
        self.power = self._power(history)
        done = [
            t
            for t in history
            if t.state is TrialState.COMPLETED and t.seconds > 0 and self._space.legal(t.params)
        ]
        seconds = np.array([trial.seconds for trial in done])
        if (
            self.power <= 0
            or len(done) < LEAST_TRIALS
            or float(np.log(seconds).std()) < LEAST_SPREAD
        ):
            self._seconds = None
            return
        self._seconds = Quantity.fit(
            self._fitter, self._space.encode([t.params for t in done]), seconds
        )

    def per_second(self, score: Score) -> Score:
        """A score that is the logarithm of a gain, less the weighed logarithm of the seconds."""
        seconds = self._seconds
        if seconds is None:
            return score
        return lambda unit: score(unit) - self.power * torch.from_numpy(seconds(unit))

    def _power(self, history: Sequence[Trial]) -> float:
        budget = self._budget
        ended = max((trial.ended for trial in history if trial.ended is not None), default=0.0)
        times = [ended / budget.time] if budget.time else []
        times += (
            [sum(trial.seconds for trial in history) / budget.worker_time]
            if budget.worker_time
            else []
        )
        spent = max(times, default=1.0)
        if budget.trials is not None and len(history) / budget.trials > spent:
            return 0.0
        return max(0.0, 1.0 - spent)
