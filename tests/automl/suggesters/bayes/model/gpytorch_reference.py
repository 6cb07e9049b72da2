"""The surrogate in GPyTorch and BoTorch: the reference of the closed forms in `gp` and `kernel`."""

from typing import Any, cast

import torch
from botorch.models.gpytorch import GPyTorchModel
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.kernel import (
    JITTER,
    Features,
    HyperparameterPrior,
    Hyperparameters,
)


def inputs(features: Features) -> Tensor:
    """Features as one `n x (c + f + t + 1)` tensor, the input of the exported model."""
    return torch.cat([features.z, features.phi, features.trend, features.mean[:, None]], -1)


class MixedKernel(Kernel):  # type: ignore[misc]
    """The covariance of `kernel.py` over `inputs`, with its hyperparameters as GPyTorch parameters.

    Args:
        hyper: initial values, a batch of `s`.
        prior: says which column belongs to which parameter.
    """

    def __init__(self, hyper: Hyperparameters, prior: HyperparameterPrior) -> None:
        super().__init__(batch_shape=torch.Size([len(hyper.full)]))
        self.prior = prior
        for name in ("full", "pair", "length", "additive"):
            values = getattr(hyper, name).clone().log()
            self.register_parameter(f"log_{name}", torch.nn.Parameter(values))
        self.register_parameter("direction", torch.nn.Parameter(hyper.direction.clone()))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        """Covariances `s x n x m`, or their diagonal."""
        c = len(self.prior.z_group)
        f = c + len(self.prior.phi_group)
        length = self.log_length.exp()[:, None, self.prior.z_group]
        weight = self.log_additive.exp()[:, None, self.prior.phi_group]
        z1, z2 = x1[..., :c] / length, x2[..., :c] / length
        main = (x1[..., c:f] * weight) @ x2[..., c:f].transpose(-1, -2)
        common = x1[..., f:-1] @ x2[..., f:-1].transpose(-1, -2) + 1.0
        difference = z1.unsqueeze(-2) - z2.unsqueeze(-3)
        along1, along2 = self._along(x1), self._along(x2)
        squared = difference.square().sum(-1) + (along1 - along2.transpose(-1, -2)).square()
        scaled = (5.0 * squared).clamp(min=1e-30).sqrt()
        matern = (1.0 + scaled + scaled.square() / 3.0) * torch.exp(-scaled)
        full, pair = self.log_full.exp()[:, None, None], self.log_pair.exp()[:, None, None]
        covariance = full * matern + main + pair * main.square() + common
        return cast(Tensor, covariance.diagonal(dim1=-2, dim2=-1) if diag else covariance)

    def _along(self, x: Tensor) -> Tensor:
        """Projections on the direction, `s x n x 1`."""
        return cast(Tensor, x[..., self.prior.numbers] @ self.direction[:, :, None])


class PriorMean(Mean):  # type: ignore[misc]
    """The mean function of `kernel.py`: the last input."""

    def forward(self, x: Tensor) -> Tensor:
        """Means `s x n`."""
        return x[..., -1]


class EnsembleGP(ExactGP, GPyTorchModel):  # type: ignore[misc]
    """The ensemble as a batch of exact Gaussian processes; its posterior is their mixture."""

    _num_outputs = 1

    def __init__(self, ensemble: Ensemble) -> None:
        size = len(ensemble.hyper.noise)
        shape = torch.Size([size])
        likelihood = GaussianLikelihood(batch_shape=shape).double()
        likelihood.noise_covar.register_constraint("raw_noise", GreaterThan(JITTER / 10))
        likelihood.noise = (ensemble.hyper.noise + JITTER)[:, None]
        x = inputs(ensemble.features).expand(size, -1, -1)
        super().__init__(x, ensemble.y.expand(size, -1), likelihood)
        self.mean_module = PriorMean()
        self.covar_module = MixedKernel(ensemble.hyper, ensemble.prior)
        self.double().eval()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at `x`."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def posterior(self, X: Tensor, **options: Any) -> GaussianMixturePosterior:  # noqa: N803
        """The mixture at `... x q x (c + f + t + 1)` inputs, the ensemble third from last."""
        mixed = super().posterior(X.unsqueeze(-3), **options)
        return GaussianMixturePosterior(distribution=mixed.distribution)
