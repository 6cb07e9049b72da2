"""Random search (Bergstra and Bengio, "Random search for hyper-parameter optimization", JMLR 2012)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from automl.core.trial import Trial
from workers.protocol import Params

from ._draws import keys, new_points
from .base import Suggester


class RandomSuggester(Suggester):
    """Uniform draws in the unit cube of the space, each a function of the seed and the number of trials so far."""

    name = "random"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`; a configuration that was tried before is not proposed again."""
        rng = np.random.default_rng([self.seed, len(history) + len(pending)])
        return new_points(self.space, rng, keys(self.space, history, pending), count)
