"""Several runs of a configuration as one observation: their mean, with a part of the noise.

The mean of k runs has the noise variance s / k, and the posterior is the same as that of all runs
(Binois et al., "Replication or exploration?", 2019). What the mean loses is how much the runs of a
configuration differ: their variance is a chi-squared observation of s, which narrows its prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .data import Array
from .kernel import HyperparameterPrior

LEAST = 1e-8  # of a variance within configurations, in the scale of the fit


@dataclass(frozen=True)
class Repeated:
    """How often each of `n` configurations has run.

    Args:
        runs: `n`, number of runs.
        squares: `n`, sum of the squared distances of the runs from their mean, in the scale of the
            fit.
    """

    runs: Array
    squares: Array

    @classmethod
    def of(cls, runs: Sequence[Array], transform: Callable[[Array], Array]) -> Repeated | None:
        """From the losses of the runs of each configuration, and the transform of the fit.

        Returns:
            None if each has run once.
        """
        if all(len(losses) == 1 for losses in runs):
            return None
        squares = [
            float(np.square((y := transform(losses)) - y.mean()).sum()) if len(losses) > 1 else 0.0
            for losses in runs
        ]
        return cls(np.array([float(len(losses)) for losses in runs]), np.array(squares))

    def known(self, prior: HyperparameterPrior) -> HyperparameterPrior:
        """The prior of the hyperparameters, given how much the runs of configurations differ.

        The logarithm of the variance within configurations, of k degrees of freedom, is about
        normal around that of the noise; its mean and variance are those of log chi-squared.
        """
        from scipy.special import digamma, polygamma

        degrees = float((self.runs - 1).sum())
        seen = math.log(max(float(self.squares.sum()) / degrees, LEAST))
        seen -= float(digamma(degrees / 2)) - math.log(degrees / 2)
        loc, scale = prior.noise
        certain, before = 1 / float(polygamma(1, degrees / 2)), 1 / scale**2
        mean = (certain * seen + before * loc) / (certain + before)
        return prior.with_noise(mean, 1 / math.sqrt(certain + before))
