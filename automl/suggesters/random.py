"""Random search (Bergstra and Bengio, JMLR 2012)."""

from collections.abc import Sequence

import numpy as np

from automl.core import Trial
from workers.protocol import Params

from .base import Suggester
from .domain import new_points


class RandomSuggester(Suggester):
    """Draws uniformly in the unit cube of the space, seeded by `seed` and the number of trials."""

    name = "random"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        rng = np.random.default_rng([self.seed, len(history) + len(pending)])
        return new_points(self.space, rng, self.trial_keys(history, pending), count)
