"""Partitions of the entities, and the order in which pairs of partitions are trained.

After PyTorch-BigGraph (Lerer et al. 2019, arXiv:1903.12287): two partitions are in memory at a
time, and the edges between them, in both directions, are trained. The pairs of a round are
disjoint, so that several workers can train them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workers.workloads._data import IntArray

Pair = tuple[int, int]


@dataclass(frozen=True)
class Partitioning:
    """A random, balanced assignment of entities to partitions.

    Args:
        partition: partition of each entity, (num_entities,).
        offset: position of each entity in its partition, (num_entities,).
        sizes: number of entities of each partition.
    """

    partition: IntArray
    offset: IntArray
    sizes: tuple[int, ...]

    @classmethod
    def random(
        cls, num_entities: int, num_partitions: int, seed: int, deal: int = 0
    ) -> Partitioning:
        """A partitioning that depends only on the arguments; sizes differ by at most one.

        Args:
            deal: number of the shuffle.
        """
        rng = np.random.default_rng([seed, 0x9A47, *([deal] if deal else [])])
        order = rng.permutation(num_entities)
        place = np.empty(num_entities, np.int64)
        place[order] = np.arange(num_entities)
        sizes = np.bincount(place % num_partitions, minlength=num_partitions)
        return cls(place % num_partitions, place // num_partitions, tuple(int(s) for s in sizes))

    @property
    def count(self) -> int:
        """Number of partitions."""
        return len(self.sizes)

    def entities(self, part: int) -> IntArray:
        """The entities of a partition, in the order of their offsets."""
        found = np.flatnonzero(self.partition == part)
        return found[np.argsort(self.offset[found])]


def rounds(num_partitions: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs such that all partitions meet once: the circle method.

    Example:
        >>> rounds(4)
        [[(0, 3), (1, 2)], [(0, 2), (3, 1)], [(0, 1), (2, 3)]]
    """
    if num_partitions == 1:
        return [[(0, 0)]]
    if num_partitions % 2:
        raise ValueError(f"the number of partitions is 1 or even, got {num_partitions}")
    around = list(range(1, num_partitions))
    result = []
    for _ in range(num_partitions - 1):
        ring = [0, *around]
        result.append([(ring[i], ring[-1 - i]) for i in range(num_partitions // 2)])
        around = [around[-1], *around[:-1]]
    return result


def edges_of_pairs(
    edges: IntArray, partitioning: Partitioning, rng: np.random.Generator
) -> dict[Pair, IntArray]:
    """Shuffled indices of the edges that each pair trains.

    An edge inside one partition goes to a random pair with that partition.

    Args:
        edges: (n, 3) of head, relation, tail.
        rng: differs from epoch to epoch.
    """
    pairs = [pair for one in rounds(partitioning.count) for pair in one]
    if len(pairs) == 1:
        return {pairs[0]: rng.permutation(len(edges))}
    count = partitioning.count
    heads, tails = partitioning.partition[edges[:, [0, 2]].T]
    others = (heads + rng.integers(1, count, len(edges))) % count
    tails = np.where(heads == tails, others, tails)
    key = np.minimum(heads, tails) * count + np.maximum(heads, tails)
    order = rng.permutation(len(edges))
    order = order[np.argsort(key[order], kind="stable")]
    bounds = np.searchsorted(key[order], np.arange(count * count + 1))
    found = {}
    for a, b in pairs:
        at = min(a, b) * count + max(a, b)
        found[a, b] = rng.permutation(order[bounds[at] : bounds[at + 1]])
    return found
