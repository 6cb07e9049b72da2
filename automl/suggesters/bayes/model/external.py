"""A surrogate of the user's own instead of the ensemble: any model with a BoTorch posterior.

>>> def build(x, y):                                                   # doctest: +SKIP
...     model = SingleTaskGP(x, y[:, None])
...     fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
...     return model
>>> BayesSuggester(space, goals, surrogate=build)                      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kernel import Features

Build = Callable[[Tensor, Tensor], Any]
FOLDS = 5


@dataclass(frozen=True)
class ExternalSurrogate:
    """A model of standardised losses, with the interface of an `Ensemble` of one.

    Args:
        build: makes a BoTorch model of one output from `z` and `y`. `z` is `n x c`: numbers in
            [0, 1], a block of indicators for each unordered choice, inactive numbers in the middle.
        model: made by `build`.
        features: of the trials.
        y: `n`, their standardised losses.
    """

    build: Build
    model: Any
    features: Features
    y: Tensor

    @classmethod
    def fit(cls, build: Build, features: Features, y: Tensor) -> ExternalSurrogate:
        """Build the model of these observations."""
        return cls(build, build(features.z, y), features, y)

    def predict(self, candidates: Features) -> tuple[Tensor, Tensor]:
        """Means and variances, `1 x m` each."""
        with torch.no_grad():
            posterior = self.model.posterior(candidates.z[:, None, :])
            return posterior.mean[:, 0, 0][None], posterior.variance[:, 0, 0][None].clamp(min=1e-14)

    def improvement(self, candidates: Features, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(observed[index]) - f(candidate), `1 x m` each; `index` is `1`."""
        best = self.features.z[index].expand(len(candidates), -1)
        with torch.no_grad():
            posterior = self.model.posterior(torch.stack([candidates.z, best], 1))
            mean = posterior.mean[:, :, 0]
            covariance = posterior.distribution.covariance_matrix
        variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2.0 * covariance[:, 0, 1]
        return (mean[:, 1] - mean[:, 0])[None], variance.clamp(min=1e-14)[None]

    def fantasize(self, pending: Features) -> ExternalSurrogate:
        """Condition on pending configurations, each at its predicted value."""
        mean, _ = self.predict(pending)
        return ExternalSurrogate.fit(
            self.build, self.features.with_more(pending), torch.cat([self.y, mean[0]])
        )

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances of each target given other folds, `1 x n`; builds five models."""
        fold = torch.arange(len(self.y)) % FOLDS
        mean = torch.empty_like(self.y)
        variance = torch.empty_like(self.y)
        for i in range(min(FOLDS, len(self.y))):
            rest = ExternalSurrogate.fit(self.build, self.features[fold != i], self.y[fold != i])
            found_mean, found_variance = rest.predict(self.features[fold == i])
            mean[fold == i] = found_mean[0]
            variance[fold == i] = found_variance[0]
        return mean[None], variance[None]
