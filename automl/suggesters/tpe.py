"""The tree-structured Parzen estimator of Optuna (Bergstra et al., 2011; Watanabe, arXiv:2304.11127)."""

from __future__ import annotations

from typing import Any

from ._optuna import OptunaSuggester


class TpeSuggester(OptunaSuggester):
    """Optuna's default sampler, as it is: multivariate, the first ten trials random."""

    name = "tpe"

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed)
