"""How likely a configuration is to succeed, learned from what failed: one classifier a kind of failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .classifier import Classifier
from .data import Array
from .encoding import Encoder
from .measured import Quantity
from .models import MOST_CONDITIONED, best_and_random

FORGIVEN, SHARE = 1.5, 0.055  # failures that are within budget: so many, and this share of the trials after the start
RISK, PATIENCE = 0.35, 0.6  # risk that is accepted where the budget is just used up, its factor by each failure beyond
LEAST, MOST = 0.3, 0.85  # bounds of the probability of success that is demanded
BARRIER = 1e4  # loss of logarithmic value by probability that is missing
MOST_COMPARED, REACHED = 64, 0.7  # successes, the newest of them, and the quantile of their probabilities
WEIGHT = 3.0  # of a measured quantity against a parameter


class Feasibility:
    """Probability that none of the kinds of failure seen so far strikes.

    Each kind has a classifier, see `Classifier`; docs/bayes.md tells what it was chosen from.
    A search that maximises anything picks the candidates whose probability is overestimated, so the probability that
    it demands follows what happened, as the step of an integral controller: it rises with each failure beyond a budget
    and falls as trials succeed.

    Args:
        encoders: by kind of failure, of the parameters that can bring it about.
        unit: `n x d`; kinds: `n`, "" where the trial succeeded; num_start: trials that no model chose
            and that the budget does not count.
        measured: by kind of failure, the quantity whose excess brings it about.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        unit: Array,
        kinds: NDArray[np.str_],
        num_start: int = 0,
        measured: Mapping[str, Quantity] = MappingProxyType({}),
    ) -> None:
        chosen = kinds[num_start:]
        overrun = float((chosen != "").sum()) - FORGIVEN - SHARE * len(chosen)
        seen = sorted(set(kinds.tolist()) - {""})
        self.parts = [Part.fit(encoders[kind], unit, kinds, kind, measured.get(kind)) for kind in seen]
        self.demanded = min(demanded(overrun), self._reached(unit[kinds == ""]))

    def _reached(self, succeeded: Array) -> float:
        """The probability that is ascribed to most successes: more cannot be asked where failures are mere chance."""
        if not self.parts or not len(succeeded):
            return 1.0
        newest = succeeded[-MOST_COMPARED:]
        return float(self.log_probability(newest).exp().quantile(REACHED))

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for part in self.parts:
            total += part.log_probability(unit)
        return total

    def log_weight(self, unit: Array) -> Tensor:
        """What the acquisition adds: the log probability, and a penalty below the one that is demanded."""
        log_probability = self.log_probability(unit)
        return log_probability - BARRIER * (self.demanded - log_probability.exp()).clamp(min=0.0)


def demanded(overrun: float) -> float:
    """The probability of success to demand of the next trial, after so many failures more than the budget has."""
    return min(max(1.0 - RISK * PATIENCE**overrun, LEAST), MOST)


@dataclass(frozen=True)
class Part:
    """Whether one kind of failure stays away, over the parameters that can bring it about.

    What is expected of `measured`, where that is known, is one more coordinate.
    """

    encoder: Encoder
    model: Classifier
    measured: Quantity | None

    @classmethod
    def fit(cls, encoder: Encoder, unit: Array, kinds: NDArray[np.str_], kind: str, measured: Quantity | None) -> Part:
        """Learn from the successes and the failures of this kind, of many from the newest and some of the others."""
        rows = np.flatnonzero((kinds == "") | (kinds == kind))
        rows = rows[best_and_random(-rows.astype(np.float64), MOST_CONDITIONED, 0)]
        succeeded = torch.from_numpy((kinds[rows] == "").astype(np.float64))
        return cls(
            encoder, Classifier.fit(encoder.coordinates(_with_column(unit[rows], measured)), succeeded), measured
        )

    def log_probability(self, unit: Array) -> Tensor:
        """Of `m` configurations."""
        return self.model.log_probability(self.encoder.coordinates(_with_column(unit, self.measured)))


def _with_column(unit: Array, measured: Quantity | None) -> Array:
    """Configurations and the column of what is measured, `WEIGHT` times as wide as that of a parameter."""
    if measured is None:
        return np.column_stack([unit, np.full(len(unit), np.nan)])
    return np.column_stack([unit, 0.5 + WEIGHT * (measured.column(unit) - 0.5)])
