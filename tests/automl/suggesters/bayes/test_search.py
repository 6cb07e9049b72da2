"""Maximising a score over a domain."""

from __future__ import annotations

import numpy as np
import torch

from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.bayes.search import AcquisitionOptimizer
from automl.suggesters.domain import Domain
from search_spaces import Choice, Float, Space

SPACE = Space(
    Float("x", 0.0, 1.0),
    Choice("mode", ["a", "b", "c"]),
    Choice("fast", [False, True]),
    Float("gap", 0.0, 1.0, when={"mode": "c"}),
)


def params(x: float, mode: str, fast: bool = False) -> dict:
    return {"x": x, "mode": mode, "fast": fast} | ({"gap": 0.5} if mode == "c" else {})


def test_a_configuration_that_was_tried_is_not_the_changed_one():
    search, rng = AcquisitionOptimizer(CandidateSampler(Domain(SPACE))), np.random.default_rng(0)
    base, column = SPACE.encode([params(0.5, "a")]), list(SPACE.parameters).index("fast")
    value = SPACE.parameters["fast"].to_unit(True)

    def flat(unit):
        return torch.zeros(len(unit), dtype=torch.float64)

    assert search.changed(flat, base, set(), rng, (column, value)) == params(0.5, "a", True)
    assert (
        search.changed(flat, base, {SPACE.key(params(0.5, "a", True))}, rng, (column, value))
        is None
    )
    assert search.changed(lambda unit: flat(unit) - 1e3, base, set(), rng, (column, value)) is None
