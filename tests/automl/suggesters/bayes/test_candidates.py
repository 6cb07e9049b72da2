"""Candidates within a domain."""

from __future__ import annotations

import numpy as np
import pytest

from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.domain import Domain, Limit
from search_spaces import Choice, Float, Int, Space


@pytest.mark.parametrize("text", ["a * b == 12", "a + b <= 3"])
def test_candidates_satisfy_the_constraints(text):
    space = Space(Int("a", 1, 64), Int("b", 1, 64), Float("x", 0.0, 1.0), constraints=[text])
    sampler, rng = CandidateSampler(Domain(space)), np.random.default_rng(0)
    points = sampler.everywhere(rng, 200)
    assert len(points) >= 50
    assert space.feasible(points).all()
    assert space.feasible(sampler.near(rng, points[:2], 80, (0.01, 0.3))).all()
    assert isinstance(sampler.domain.repair({}, rng), dict)


def test_candidates_reach_the_ends_of_ranges_and_far_values():
    space = Space(*(Float(f"x{i}", 0.0, 1.0) for i in range(4)), Choice("c", list("abc")))
    rng = np.random.default_rng(0)
    sampler = CandidateSampler(Domain(space, {"x0": Limit(low=0.0, high=0.5)}))
    base = np.array([0.1, 0.1, 0.1, 0.1, 0.5])
    everywhere = sampler.everywhere(rng, 400)
    near = sampler.near(rng, base[None], 400, (0.1, 0.3))
    moves = sampler.moves(rng, base, 400)
    for points in (everywhere, moves):
        assert (points[:, 0] == 0.5).any()
        assert (points[:, 1:4] == 1.0).any()
        assert points[:, 0].max() <= 0.5
    assert (near[:, :4] == 0.0).any()
    assert ((moves != base).sum(1) <= 2).all()
    assert (abs(moves[:, 1] - 0.8) < 0.1).any()


def test_logarithmic_integers_are_drawn_by_their_logarithm():
    space = Space(Int("n", 1, 1000, log=True), Float("x", 0.0, 1.0))
    for limits, median in ({}, 22.4), ({"n": Limit(low=10, high=100)}, 30.9):  # ends are symmetric
        sampler = CandidateSampler(Domain(space, limits))
        found = space.decode(sampler.everywhere(np.random.default_rng(0), 2000))
        values = [float(params["n"]) for params in found]  # type: ignore[arg-type]
        assert np.median(values) == pytest.approx(median, rel=0.1)


def test_every_kind_of_candidate_lies_within_limits():
    space = Space(
        Float("x", 0.0, 1.0),
        Int("n", 1, 20_000),
        Choice("kind", list("abcd")),
        Float("y", 0.0, 1.0, when={"kind": ["c", "d"]}),
    )
    limits = {"x": Limit(low=0.2, high=0.4), "n": Limit(low=9, high=9), "kind": Limit(tuple("ac"))}
    domain, rng = Domain(space, limits), np.random.default_rng(0)
    sampler = CandidateSampler(domain)
    outside = space.encode(space.sample(rng, 5))
    kinds = [
        sampler.everywhere(rng, 50),
        sampler.near(rng, outside, 50, (0.01, 0.3)),
        sampler.crossed(rng, outside, 50),
        sampler.moves(rng, outside[0], 50),
    ]
    for params in space.decode(np.concatenate(kinds)):
        assert domain.first_new([params], set())
