"""Meshes, cuts, and legality of what is proposed."""

from __future__ import annotations

import pytest
import torch

from search_spaces.errors import UsageError
from workers.parallel import num_ranks
from workers.parallel.mesh import Mesh, balanced
from workers.parallel.strategies.tensor import regrouped


def test_every_rank_has_a_place_of_its_own():
    axes = ("data", "shard", "pipeline", "tensor")
    places = {
        tuple(Mesh(r, 12, data=2, pipeline=3, tensor=2).coordinate(a) for a in axes)
        for r in range(12)
    }
    assert places == {(d, 0, p, t) for d in range(2) for p in range(3) for t in range(2)}


@pytest.mark.parametrize(
    ("costs", "num_stages", "dearest"),
    [([1, 1, 1, 1], 2, 2), ([5, 1, 1, 1], 2, 5), ([2, 2, 3, 3, 3], 3, 6)],
)
def test_stages_are_balanced(costs, num_stages, dearest):
    parts = balanced(costs, num_stages)
    assert [i for part in parts for i in part] == list(range(len(costs)))
    assert max(sum(costs[i] for i in part) for part in parts) == dearest
    assert all(len(part) for part in parts)


def test_more_stages_than_layers_cannot_be():
    with pytest.raises(UsageError, match="2 layers"):
        balanced([1.0, 1.0], 3)


def test_regrouped_rows_come_back():
    rows = torch.arange(24.0).view(12, 2)
    parts = regrouped(rows, 3, 2)
    assert torch.equal(parts[:6], torch.cat([matrix.chunk(2)[0] for matrix in rows.chunk(3)]))
    assert torch.equal(regrouped(parts, 2, 3), rows)


def test_number_of_ranks():
    assert num_ranks({}, {}) == 1
    assert num_ranks({"parallelism": "ddp"}, {}) == 2
    assert num_ranks({"parallelism": "ddp"}, {"ranks": 4}) == 4
    assert num_ranks({"parallelism": "single", "ranks": 4}, {}) == 1
    with pytest.raises(UsageError, match="ranks"):
        num_ranks({"parallelism": "ddp", "ranks": 0}, {})
