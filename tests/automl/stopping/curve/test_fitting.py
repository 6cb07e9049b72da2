"""The closed-form likelihood and gradient of the model of curves, against autograd."""

from __future__ import annotations

import numpy as np
import torch

from automl.stopping.curve.gp import Density, Kernel, Points, prior

GROUPS = torch.tensor([0, 1, 1, 2])


def _data() -> tuple[Points, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    curve = torch.randint(0, 8, (30,), generator=random)
    z = torch.rand((8, 4), generator=random, dtype=torch.float64)[curve]
    t = torch.randint(1, 50, (30,), generator=random).double().log()
    return Points(z, t, curve), torch.randn(30, generator=random, dtype=torch.float64)


def test_density_and_gradient_are_those_of_the_kernel() -> None:
    points, y = _data()
    u = (
        prior(GROUPS)[0] + 0.2 * torch.randn(10, generator=torch.Generator().manual_seed(1))
    ).requires_grad_()
    kernel = Kernel(u, GROUPS)
    covariance = kernel(points, points) + kernel.noise * torch.eye(30, dtype=torch.float64)
    mean = torch.ones(30, dtype=torch.float64)
    about_one = (
        covariance + 1.0
    )  # of which the best mean leaves the quadratic form of a mean with a variance of 1
    expected = 0.5 * (y - mean) @ torch.linalg.solve(about_one, y - mean) + 0.5 * torch.logdet(
        covariance
    )
    (wanted,) = torch.autograd.grad(expected, u)
    value, gradient = Density(points, y, GROUPS)(u.detach().numpy())
    np.testing.assert_allclose(value, expected.item(), rtol=1e-9)
    np.testing.assert_allclose(gradient, wanted.numpy(), rtol=1e-6, atol=1e-8)
