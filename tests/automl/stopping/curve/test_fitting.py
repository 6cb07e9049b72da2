"""The model of curves: its density, and what a prediction as an observation changes."""

from __future__ import annotations

import torch

from automl.stopping.curve.gp import Kernel, Points, Posterior, prior

GROUPS = torch.tensor([0, 1, 1, 2])


def test_the_density_is_that_of_the_kernel_and_a_fantasy_keeps_the_mean() -> None:
    random = torch.Generator().manual_seed(0)
    curve = torch.randint(0, 8, (30,), generator=random)
    z = torch.rand((8, 4), generator=random, dtype=torch.float64)[curve]
    t = torch.randint(1, 50, (30,), generator=random).double().log()
    points, y = Points(z, t, curve), torch.randn(30, generator=random, dtype=torch.float64)
    kernel = Kernel(prior(GROUPS)[0] + 0.2 * torch.randn(10, generator=random), GROUPS)
    covariance = kernel(points, points) + kernel.noise * torch.eye(30, dtype=torch.float64)
    # The best mean leaves the quadratic form of a mean with a variance of 1.
    about_one = covariance + 1.0
    squares = (y - 1.0) @ torch.linalg.solve(about_one, y - 1.0)
    expected = -0.5 * (squares + torch.logdet(covariance))
    posterior = Posterior.condition(kernel, points, y)
    torch.testing.assert_close(posterior.log_density(), expected, rtol=1e-9, atol=0.0)
    new, other = Points(z[:3], t[:3] + 1.0, curve[:3]), Points(z[3:9], t[3:9], curve[3:9])
    mean, variance = posterior.predict(other)
    known = posterior.fantasize(new).predict(other)
    torch.testing.assert_close(known[0], mean)
    assert (known[1] < variance).all()
