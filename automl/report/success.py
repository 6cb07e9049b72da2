"""The probability that a configuration succeeds, as the suggester models it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .effects import grid_of, moved
from .record import Record


class SuccessModel:
    """The suggester's model of failures, fitted to the trials of a record.

    Attributes:
        kinds: of failures that were seen, in order of the model's parts.
    """

    def __init__(self, record: Record) -> None:
        from automl.suggesters.bayes.data import TrialReader
        from automl.suggesters.bayes.suggester import one_thread
        from automl.suggesters.bayes.surrogates import Surrogates

        self.space = record.space
        goals, constraints = record.snapshot.goals, record.snapshot.constraints
        with one_thread():
            reader = TrialReader(self.space, goals, [c.metric for c in constraints])
            surrogates = Surrogates(self.space, goals, constraints, record.spec.seed)
            data = reader(record.trials)
            self.model = surrogates.failures(data)
        self.kinds = sorted(set(data.kinds.tolist()) - {""})

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """The probability of success of each configuration."""
        from automl.suggesters.bayes.suggester import one_thread

        with one_thread():
            log = self.model.log_probability(self.space.encode(rows))
        return np.asarray(log.exp().numpy(), dtype=np.float64)

    def of_kinds(self, params: Mapping[str, Any]) -> dict[str, float]:
        """The probability of each kind of failure for one configuration."""
        from automl.suggesters.bayes.suggester import one_thread

        unit = self.space.encode([params])
        with one_thread():
            return {
                kind: 1.0 - float(part.log_probability(unit).exp()[0])
                for kind, part in zip(self.kinds, self.model.parts, strict=True)
            }

    def spread(self, name: str, base: Sequence[Mapping[str, Any]]) -> float:
        """The standard deviation of the probability over the range of a parameter."""
        grid = grid_of(self.space.parameters[name])
        rows = [moved(self.space, params, name, value) for value in grid for params in base]
        return float(self(rows).reshape(len(grid), -1).mean(1).std())
