"""Predicts the memory of a user's objective from the peaks of its earlier trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import SweepSpec, Trial

if TYPE_CHECKING:
    from automl.suggesters.bayes.model import Fitter
    from automl.suggesters.bayes.quantities import LogGP

MIN_TRIALS: Final = 6  # with a measured peak
# The surrogate is not sure of what needs ten times the highest peak so far. Five simulated sweeps
# refused the same configurations without this rule, which spares most sweeps the fits.
NEAR_LIMIT: Final = 0.1


class OwnMemory:
    """A surrogate of the peak memory of a rank, over the parameters that affect memory.

    It is a Gaussian process of the logarithm, as `bayes` has one.

    Args:
        spec: of the sweep.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._affects = any("memory" in p.affects for p in spec.space.parameters.values())
        self._peaks: dict[int, tuple[Mapping[str, Any], float]] = {}  # by trial
        self._fitter: Fitter | None = None
        self._fitted: LogGP | None = None
        self._num_fitted = 0

    def observe(self, trial: Trial) -> None:
        """Learn from a trial that has ended with a measured peak."""
        peak = trial.peak_memory_bytes
        if peak and trial.failure != "out_of_memory" and self._spec.space.legal(trial.params):
            self._peaks[trial.number] = (trial.params, float(peak))

    @property
    def informed(self) -> bool:
        """Whether enough peaks are known to predict others."""
        return self._affects and len(self._peaks) >= MIN_TRIALS

    def at_least(self, params: Mapping[str, Any], limit: int) -> int | None:
        """Bytes that a configuration surely needs: the prediction less one standard deviation.

        Args:
            limit: of a rank; far below it nothing is predicted.

        Returns:
            None if too little is known.
        """
        if not self.informed or self._highest() < NEAR_LIMIT * limit:
            return None
        if self._num_fitted != len(self._peaks):
            self._fit()
        if self._fitted is None:
            return None
        unit = self._spec.space.encode([params])
        return int(math.exp(float(self._fitted.optimistic(unit)[0])))

    def _highest(self) -> float:
        return max(peak for _, peak in self._peaks.values())

    def _fit(self) -> None:
        from automl.suggesters.bayes.kernel import MEMORY
        from automl.suggesters.bayes.quantities import LogGP

        space, seed = self._spec.space, self._spec.seed
        if self._fitter is None:  # it learns its hyperparameters anew at few numbers of trials
            self._fitter = LogGP.fitter(space, MEMORY, seed)
        unit = space.encode([params for params, _ in self._peaks.values()])
        peaks = np.array([peak for _, peak in self._peaks.values()])
        self._num_fitted = len(self._peaks)
        try:
            self._fitted = LogGP.reliable(self._fitter, unit, peaks)
        except RuntimeError:  # of linear algebra: a prediction is not worth the sweep
            self._fitted = None
