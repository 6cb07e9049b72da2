"""The surrogate: closed forms, and what it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.models.transforms.outcome import OutcomeTransform

from automl.suggesters.bayes.kernel import ALL, MEMORY, QUALITY, SPEED, Encoder, affecting
from automl.suggesters.bayes.model import (
    EnsembleGP,
    EnsembleMatern,
    Fitter,
    Knee,
    log_posterior,
)
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("x", 0.0, 1.0),
    Int("n", 1, 9),
    Choice("c", ["a", "b", "c"]),
    Choice("o", [1, 2, 4], ordered=True),
    Float("w", 0.0, 1.0, when={"c": ["a", "b"]}),
)


def conditioned(count: int, effects: bool = False, seed: int = 0) -> tuple[EnsembleGP, Encoder]:
    rng, encoder = np.random.default_rng(seed), Encoder(SPACE, effects=effects)
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn((4, 13 if effects else 7), generator=generator, dtype=torch.float64)
    X = encoder(SPACE.encode(SPACE.sample(rng, count)))
    y = torch.from_numpy(rng.standard_normal(count))
    return EnsembleGP(EnsembleMatern(encoder, raw), X, y), encoder


def candidates(encoder: Encoder, count: int) -> torch.Tensor:
    return encoder(SPACE.encode(SPACE.sample(np.random.default_rng(3), count)))


@pytest.mark.parametrize("effects", [False, True])
def test_every_prediction_is_that_of_the_joint_posterior(effects: bool) -> None:
    model, encoder = conditioned(12, effects)
    Z = candidates(encoder, 150)
    mean, covariance = model.joint(Z)
    for found, expected in zip(
        model.moments(Z), (mean, covariance.diagonal(dim1=1, dim2=2)), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-6)
    both = torch.cat([model.X, Z])
    mean, covariance = model.joint(both)
    index = torch.tensor([0, 3, 7, 11])
    gain, variance = model.improvement(Z, index)
    for s, i in enumerate(index.tolist()):
        c = covariance[s]
        expected = c.diagonal()[12:] + c[i, i] - 2 * c[i, 12:]
        torch.testing.assert_close(variance[s], expected, atol=1e-8, rtol=1e-5)
        torch.testing.assert_close(gain[s], mean[s, 12:] - mean[s, i])
    posterior = model.posterior(Z[:5, None])
    assert posterior.mean.shape == (5, 4, 1, 1)
    torch.testing.assert_close(posterior.mean[:, :, 0, 0].T, model.moments(Z[:5])[0])


def test_draws_have_the_moments_of_the_posterior() -> None:
    model, encoder = conditioned(12)
    Z = candidates(encoder, 4)
    drawn = model.draw(Z, 4000, torch.Generator().manual_seed(0))
    mean, variance = model.moments(Z)
    torch.testing.assert_close(drawn.mean(0), mean.mean(0), atol=0.06, rtol=0.0)
    spread = variance.mean(0) + mean.var(0, correction=0)
    torch.testing.assert_close(drawn.var(0), spread, atol=0.05, rtol=0.15)


def test_the_likeliest_vectors_find_noise_and_irrelevant_parameters() -> None:
    rng = np.random.default_rng(0)
    space = Space(Float("a", 0.0, 1.0), Float("b", 0.0, 1.0))
    fitter, unit = Fitter(Encoder(space), 0), rng.random((40, 2))
    exact = np.sin(6 * unit[:, 0])
    kernel = fitter.fit(unit, exact)[0].kernel
    assert (kernel.values[:, 3] > 2 * kernel.values[:, 2]).double().mean() > 0.7
    assert kernel.noise.median() < 0.01
    noisy = fitter.fit(unit, 0.5 * exact + rng.standard_normal(40))[0]
    assert 0.3 < noisy.kernel.noise.median() < 3.0
    value = log_posterior(noisy.kernel, noisy.X, noisy.y[0])
    assert (value.max() - value).median() <= 4
    again = Fitter(Encoder(space), 0).fit(unit, exact)[0]
    torch.testing.assert_close(again.kernel.raw, kernel.raw, rtol=0.0, atol=0.0)


def test_the_knee_keeps_order_and_comes_back() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e3, 1e30])
    knee = Knee(values)
    assert isinstance(knee, OutcomeTransform)
    z, _ = knee(torch.from_numpy(values))
    assert (z.diff() > 0).all()
    assert z[-1] < 4
    np.testing.assert_allclose(knee.untransform(z)[0].numpy(), values, rtol=1e-6)


def test_a_metric_is_affected_by_parameters_and_their_parents() -> None:
    space = Space(
        Choice("kind", ["a", "b"], affects={"speed"}),
        Float("rate", 0.0, 1.0, affects={"quality"}, when={"kind": "a"}),
        Float("width", 0.0, 1.0, affects={"memory", "speed"}),
    )
    assert affecting(space, QUALITY) == ("kind", "rate")
    assert affecting(space, SPEED) == ("kind", "width")
    assert affecting(space, MEMORY) == ("width",)
    assert affecting(space, ALL) == ("kind", "rate", "width")
    only = Space(Float("rate", 0.0, 1.0, affects={"quality"}))
    assert affecting(only, MEMORY) == ("rate",)
