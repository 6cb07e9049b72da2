"""The closed forms against GPyTorch and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood

from automl.suggesters.bayes.model.features import FeatureEncoder
from automl.suggesters.bayes.model.gp import Ensemble, Sampling, sample_hyperparameters
from automl.suggesters.bayes.model.kernel import log_posterior
from search_spaces import Choice, Float, Int, Space
from tests.automl.suggesters.bayes.model.gpytorch_reference import EnsembleGP, inputs

SPACE = Space(
    Float("x", 0.0, 1.0),
    Int("n", 1, 9),
    Choice("c", ["a", "b", "c"]),
    Choice("o", [1, 2, 4], ordered=True),
    Float("w", 0.0, 1.0, when={"c": ["a", "b"]}),
)
ENCODER = FeatureEncoder(SPACE, goal=True)
PRIOR = ENCODER.prior()


def data(count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return ENCODER(SPACE.encode(SPACE.sample(rng, count))), torch.from_numpy(
        rng.standard_normal(count)
    )


@pytest.fixture
def vectors():
    return torch.randn(
        4, len(PRIOR.loc), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def test_gradient_matches_finite_differences(vectors):
    features, y = data(17)
    _, gradient = log_posterior(vectors, features, y, PRIOR)
    for i in range(vectors.shape[1]):
        step = torch.zeros_like(vectors)
        step[:, i] = 1e-6
        up, down = (log_posterior(vectors + s, features, y, PRIOR)[0] for s in (step, -step))
        torch.testing.assert_close((up - down) / 2e-6, gradient[:, i], atol=1e-5, rtol=1e-5)


def test_likelihood_and_gradient_equal_gpytorch(vectors):
    features, y = data(17)
    model = EnsembleGP(Ensemble.condition(features, y, PRIOR, vectors)).train()
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)(
        model(*model.train_inputs), model.train_targets
    )
    value, gradient = log_posterior(vectors, features, y, PRIOR)
    ours = value + 0.5 * vectors.square().sum(-1) - 0.5 * len(y) * np.log(2 * np.pi)
    torch.testing.assert_close(likelihood * len(y), ours, atol=1e-6, rtol=1e-6)
    (likelihood.sum() * len(y)).backward()
    learned = (gradient + vectors) / PRIOR.scale
    torch.testing.assert_close(
        model.covar_module.log_length.grad, learned[:, PRIOR.length], atol=1e-6, rtol=1e-6
    )
    torch.testing.assert_close(
        model.covar_module.log_additive.grad, learned[:, PRIOR.additive], atol=1e-6, rtol=1e-6
    )
    direction = model.covar_module.direction.grad * 2.0 * vectors[:, PRIOR.direction].abs()
    torch.testing.assert_close(direction, learned[:, PRIOR.direction], atol=1e-6, rtol=1e-6)


def test_prediction_equals_gpytorch(vectors):
    features, y = data(17)
    ensemble = Ensemble.condition(features, y, PRIOR, vectors)
    candidates, _ = data(90, seed=5)
    posterior = EnsembleGP(ensemble).posterior(inputs(candidates))
    mean, variance = ensemble.predict(candidates)
    torch.testing.assert_close(posterior.mean[..., 0].detach(), mean, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(posterior.variance[..., 0].detach(), variance, atol=1e-6, rtol=1e-5)


def test_improvement_is_the_difference_of_two_joint_values(vectors):
    features, y = data(12)
    ensemble = Ensemble.condition(features, y, PRIOR, vectors)
    candidates, _ = data(5, seed=3)
    index = torch.tensor([0, 3, 7, 11])
    mean, variance = ensemble.improvement(candidates, index)
    model = EnsembleGP(ensemble)
    for s, i in enumerate(index):
        for j in range(5):
            both = torch.cat([inputs(features)[[int(i)]], inputs(candidates)[[j]]])
            joint = model(both.expand(4, 2, -1))
            covariance = joint.covariance_matrix[s]
            expected = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
            torch.testing.assert_close(variance[s, j], expected.detach(), atol=1e-6, rtol=1e-4)
            torch.testing.assert_close(
                mean[s, j], (joint.mean[s, 0] - joint.mean[s, 1]).detach(), atol=1e-6, rtol=1e-6
            )


def test_leave_one_out_equals_refitting(vectors):
    features, y = data(9)
    mean, variance = Ensemble.condition(features, y, PRIOR, vectors).leave_one_out()
    for i in range(9):
        rest = torch.tensor([j for j in range(9) if j != i])
        without = Ensemble.condition(features[rest], y[rest], PRIOR, vectors)
        m, v = without.predict(features[slice(i, i + 1)])
        torch.testing.assert_close(mean[:, i], m[:, 0], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(
            variance[:, i], v[:, 0] + without.hyper.noise + 1e-8, atol=1e-6, rtol=1e-6
        )


def test_irrelevant_parameters_are_found_out():
    rng = np.random.default_rng(0)
    space = Space(Float("a", 0.0, 1.0), Float("b", 0.0, 1.0))
    encoder = FeatureEncoder(space)
    unit = rng.random((25, 2))
    y = torch.from_numpy(np.sin(6 * unit[:, 0]))
    u = sample_hyperparameters(
        encoder(unit), y, encoder.prior(), Sampling(), torch.Generator().manual_seed(0)
    )
    hyper = encoder.prior().values(u)
    assert (hyper.additive[:, 1] < 0.5 * hyper.additive[:, 0]).float().mean() > 0.7


def test_a_ridge_is_found_out():
    rng = np.random.default_rng(0)
    encoder = FeatureEncoder(
        Space(Float("a", 0.0, 1.0), Float("b", 0.0, 1.0), Float("c", 0.0, 1.0)), goal=True
    )
    unit = rng.random((40, 3))
    y = torch.from_numpy(np.tanh(10 * (unit[:, 0] + unit[:, 1] - 0.9)) ** 2)
    found = []
    for prior in (encoder.prior(), encoder.prior().without_direction()):
        generator = torch.Generator().manual_seed(0)
        u = sample_hyperparameters(encoder(unit), y, prior, Sampling(ascent=20), generator)
        mean, variance = Ensemble.condition(encoder(unit), y, prior, u).leave_one_out()
        log = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y)
        found.append(float((log.logsumexp(0) - np.log(len(u))).mean()))
    assert found[0] > found[1] + 0.3


def test_noise_is_found_out():
    rng = np.random.default_rng(0)
    encoder = FeatureEncoder(Space(Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)))
    unit = rng.random((40, 2))
    y = torch.from_numpy(0.5 * np.sin(6 * unit[:, 0]) + rng.standard_normal(40))
    features, prior = encoder(unit), encoder.prior()
    u = sample_hyperparameters(features, y, prior, Sampling(), torch.Generator().manual_seed(0))
    value, _ = log_posterior(u, features, y, prior)
    behind = value.max() - value
    assert behind.median() <= u.shape[1]  # most chains are at the mode
    assert behind.max() <= 16  # and no other was thrown far from it
    assert 0.3 < prior.values(u).noise.median() < 3.0


def test_main_effects_are_as_uncertain_everywhere():
    encoder = FeatureEncoder(Space(Float("a", 0.0, 1.0)))
    phi = encoder(np.linspace(0.0, 1.0, 11)[:, None]).phi
    torch.testing.assert_close(phi.square().sum(1), phi[:1].square().sum(1).expand(11))


def test_duplicated_rows_with_tiny_noise_are_conditioned_on(vectors):
    features, y = data(6)
    twice = features[torch.tensor([0, 0, 0, 1, 1, 2, 3])]
    vectors[:, 1] = -6.0
    mean, variance = Ensemble.condition(twice, y[:1].expand(7), PRIOR, vectors).predict(features)
    assert mean.isfinite().all()
    assert (variance > 0).all()


def test_a_sketch_of_an_ensemble_predicts_as_its_vectors_do(vectors):
    features, y = data(12)
    candidates = data(5, seed=3)[0]
    whole = Ensemble.condition(features, y, PRIOR, vectors)
    mean, variance = whole.predict(candidates)
    few_mean, few_variance = whole.sketch().predict(candidates)
    torch.testing.assert_close(few_mean, mean[:2])
    torch.testing.assert_close(few_variance, variance[:2])
