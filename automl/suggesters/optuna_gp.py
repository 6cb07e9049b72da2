"""Optuna's Gaussian process sampler; it models only the parameters that all trials share."""

from typing import Any

from ._optuna import OptunaSuggester


class OptunaGpSuggester(OptunaSuggester):
    """`optuna.samplers.GPSampler` with its defaults; the first ten trials are random."""

    name = "optuna-gp"
    max_asks = 2  # it would propose nearly the same again

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, warn_independent_sampling=False)
