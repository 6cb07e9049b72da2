"""Partitions of the entities, and the order in which pairs of partitions are trained.

After PyTorch-BigGraph (Lerer et al. 2019, arXiv:1903.12287): two partitions are in memory at a
time, and the edges between them, in both directions, are trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from workers.workloads._declarative_workload import IntArray

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


def pairs_of(num_partitions: int) -> list[Pair]:
    """All pairs of different partitions; a pair often shares one with the pair before it.

    Example:
        >>> pairs_of(3)
        [(0, 1), (0, 2), (1, 2)]
    """
    return list(combinations(range(num_partitions), 2)) or [(0, 0)]


def edges_of_pairs(
    edges: IntArray, partitioning: Partitioning, rng: np.random.Generator
) -> dict[Pair, IntArray]:
    """Shuffled indices of the edges that each pair trains.

    An edge inside one partition goes to a random pair with that partition.

    Args:
        edges: (n, 3) of head, relation, tail.
        rng: differs from epoch to epoch.
    """
    pairs = pairs_of(partitioning.count)
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
        at = a * count + b
        found[a, b] = rng.permutation(order[bounds[at] : bounds[at + 1]])
    return found
