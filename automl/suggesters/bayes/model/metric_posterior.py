"""The posterior of one metric: its surrogate, and how configurations are encoded for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .data import Array
from .external import ExternalSurrogate
from .gp import Ensemble
from .kernel import Features
from .transforms import Transform


@dataclass(frozen=True)
class MetricPosterior:
    """The surrogate of one metric.

    Args:
        encoder: of `m x d` configurations, with the parameters that affect the metric.
        model: of the transformed values.
        transform: that was applied; None for a constraint.
        rows: the trials that the model is conditioned on.
    """

    encoder: Callable[[Array], Features]
    model: Ensemble | ExternalSurrogate
    transform: Transform | None
    rows: NDArray[np.intp]

    def with_pending(self, unit: Array) -> MetricPosterior:
        """Condition on pending configurations too, at their predicted values."""
        if not len(unit):
            return self
        return replace(self, model=self.model.fantasize(self.encoder(unit)))

    def sketch(self) -> MetricPosterior:
        """A cheap version with few hyperparameter vectors."""
        return (
            replace(self, model=self.model.sketch()) if isinstance(self.model, Ensemble) else self
        )
