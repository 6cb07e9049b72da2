"""What is believed of one metric: a surrogate, what it was fitted to, and how configurations are encoded for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .data import Array
from .external import External
from .gp import Ensemble
from .kernel import Features
from .transforms import Transform


@dataclass(frozen=True)
class Belief:
    """The surrogate of one metric.

    Args:
        encoder: of `m x d` configurations, by the parameters that reach the metric.
        model: of the transformed values; transform: that was applied.
        rows: which trials the model is conditioned on.
    """

    encoder: Callable[[Array], Features]
    model: Ensemble | External
    transform: Transform | None
    rows: NDArray[np.intp]

    def with_pending(self, unit: Array) -> Belief:
        """Condition further on pending configurations, at the values that are predicted for them."""
        if not len(unit):
            return self
        return Belief(
            self.encoder, self.model.believe(self.encoder(unit)), self.transform, self.rows
        )

    def sketch(self) -> Belief:
        """With few of the hyperparameter vectors."""
        return (
            replace(self, model=self.model.sketch()) if isinstance(self.model, Ensemble) else self
        )
