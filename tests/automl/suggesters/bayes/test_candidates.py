"""Candidates within a domain."""

from __future__ import annotations

import numpy as np

from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.domain import Domain, Limit
from search_spaces import Choice, Float, Space


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
