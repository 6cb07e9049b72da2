"""The cost of a trial in seconds, for sweeps with a budget of time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from automl.core import Budget, Trial, TrialState
from automl.suggesters.bayes.design import NUM_DESIGN
from automl.suggesters.bayes.model import aspects
from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.log_gp import LogGP
from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

MIN_SPREAD: Final = 0.1  # of the log seconds; below, all trials cost the same


class CostModel:
    """Learns the seconds of a trial from completed trials.

    The expected gain is divided by the expected seconds to a power, which falls from 1 to 0 as the
    time is spent (Lee et al., "Cost-aware Bayesian optimization", 2020): cheap trials first, the
    best ones at the end. If the trials run out before the time does, cost does not count.
    """

    def __init__(self, space: Space, budget: Budget, seed: int, policy: Policy = ALL_RULES) -> None:
        self._space = space
        self._budget = budget
        self._fitter = LogGP.fitter(space, aspects.SPEED, seed, policy)

    def term(self, history: Sequence[Trial]) -> Callable[[Array], Tensor] | None:
        """The term of the acquisition after these trials; None if cost does not count."""
        power = self.power(history)
        done = [
            trial
            for trial in history
            if trial.state is TrialState.COMPLETED
            and trial.seconds > 0
            and self._space.legal(trial.params)
        ]
        seconds = np.array([trial.seconds for trial in done])
        if power <= 0 or len(done) < NUM_DESIGN or np.log(seconds).std() < MIN_SPREAD:
            return None
        unit = self._space.encode([trial.params for trial in done])
        nodes = np.array([trial.node_kind for trial in done])
        cost = LogGP.fit(self._fitter, unit, seconds, nodes)
        return lambda unit: -power * torch.from_numpy(cost(unit))

    def power(self, history: Sequence[Trial]) -> float:
        """The power of the seconds: the share of the budget of time that is left."""
        budget = replace(self._budget, trials=None)
        ended = max((t.ended for t in history if t.ended is not None), default=0.0)
        worked = sum(trial.seconds for trial in history) if budget.worker_time else 0.0
        spent = budget.spent(time=ended, worker_time=worked)
        share = 1.0 if spent is None else spent
        trials = self._budget.trials
        if trials is not None and len(history) / trials > share:
            return 0.0
        return max(0.0, 1.0 - share)
