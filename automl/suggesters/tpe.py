"""Optuna's tree-structured Parzen estimator (Bergstra et al., 2011; Watanabe, 2023)."""

from typing import Any

from ._optuna import OptunaSuggester


class TpeSuggester(OptunaSuggester):
    """`optuna.samplers.TPESampler` with its defaults; the first ten trials are random."""

    name = "tpe"

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed)
