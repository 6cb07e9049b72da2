"""Optuna's Gaussian process sampler; in a conditional space it models only what all trials share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from automl.core.trial import Trial
from workers.protocol import Params

from ._isolate import isolated
from ._optuna import OptunaSuggester


class OptunaGpSuggester(OptunaSuggester):
    """`optuna.samplers.GPSampler` with its defaults: the first ten trials random, log expected improvement."""

    name = "optuna-gp"
    asks = 2  # it would propose nearly the same again

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`; the global generators are left as they were."""
        with isolated(self.seed + len(history)):
            return super().suggest(history, pending, count)

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, warn_independent_sampling=False)
