"""Which slots a gang gets: few nodes, and ranks that must be together on one."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")
from automl.dispatch.base import GangShape
from automl.dispatch.ray.nodes import choose

CASES = [
    # A node that has exactly enough, not the largest one.
    ("aaabb", GangShape(2), "bb"),
    ("aaabb", GangShape(3), "aaa"),
    # The fullest node first, then the one with the least room to spare.
    ("aabbbcc", GangShape(5), "bbbaa"),
    ("abcc", GangShape(3), "cca"),
    # Tensor-parallel ranks never straddle nodes.
    ("aaabbb", GangShape(4, 2), "aabb"),
    ("aaab", GangShape(4, 2), None),
    ("aaab", GangShape(4, 1), "aaab"),
    ("aabb", GangShape(4, 4), None),
    ("aabbbb", GangShape(4, 4), "bbbb"),
    ("aaabbbcc", GangShape(6, 3), "aaabbb"),
    ("a", GangShape(2), None),
    ("", GangShape(1), None),
]


@pytest.mark.parametrize(("nodes", "shape", "expected"), CASES)
def test_a_gang_takes_few_nodes_and_ranks_that_must_be_together_share_one(
    nodes: str, shape: GangShape, expected: str | None
) -> None:
    chosen = choose(dict(enumerate(nodes)), shape)
    if expected is None:
        assert chosen is None
        return
    assert chosen is not None
    assert len(set(chosen)) == shape.ranks
    assert "".join(nodes[slot] for slot in chosen) == expected
