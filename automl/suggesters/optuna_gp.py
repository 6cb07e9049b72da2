"""Optuna's Gaussian process sampler; it models only the parameters that all trials share."""

from collections.abc import Sequence
from typing import Any

from automl.core import Trial
from workers.protocol import Params

from ._optuna import OptunaSuggester
from ._peers import seeded_globally


class OptunaGpSuggester(OptunaSuggester):
    """`optuna.samplers.GPSampler` with its defaults; the first ten trials are random."""

    name = "optuna-gp"
    max_asks = 2  # it would propose nearly the same again

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        with seeded_globally(self.seed + len(history)):
            return super().suggest(history, pending, count)

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, warn_independent_sampling=False)
