"""Filtered ranks: the rank of the true entity among all that do not form a known edge."""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.workloads._declarative_workload import IntArray

from .data import Graph
from .partitions import Partitioning
from .tables import Tables
from .update import UpdateOptions

FloatArray = npt.NDArray[np.float64]
_SCORES = 1 << 23  # scores per block; bounds the memory and the delay of a stop request


class Known:
    """All known targets of (source, relation), in both directions, over all splits.

    Relations have two numbers: their own for tails, and that plus `num_relations` for heads.
    """

    def __init__(self, graph: Graph) -> None:
        self.num_relations = len(graph.relations)
        every = np.concatenate([graph.train, graph.valid, graph.test])
        queries, targets = both_directions(every, self.num_relations)
        keys = self._keys(queries)
        order = np.argsort(keys, kind="stable")
        self.keys = keys[order]
        self.targets = targets[order]

    def _keys(self, queries: IntArray) -> IntArray:
        return queries[:, 0] * (2 * self.num_relations) + queries[:, 1]

    def of(self, queries: IntArray) -> tuple[IntArray, IntArray]:
        """Known targets of queries (q, 2): the query's row and the entity, (n,) each."""
        keys = self._keys(queries)
        begin = np.searchsorted(self.keys, keys, "left")
        counts = np.searchsorted(self.keys, keys, "right") - begin
        rows = np.repeat(np.arange(len(queries)), counts)
        first = np.repeat(begin - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        return rows, self.targets[first + np.arange(len(rows))]


@lru_cache(2)
def known(graph: Graph) -> Known:
    """The index of a graph, cached for all trials of the process."""
    return Known(graph)


def both_directions(edges: IntArray, num_relations: int) -> tuple[IntArray, IntArray]:
    """Queries (2 n, 2) of (source, relation) and targets (2 n,): tails first, then heads."""
    h, r, t = edges.T
    queries = np.concatenate([np.stack([h, r], 1), np.stack([t, r + num_relations], 1)])
    return queries, np.concatenate([t, h])


def ranks(
    tables: Tables,
    relations: Tensor,
    edges: IntArray,
    index: Known,
    options: UpdateOptions,
    look: Callable[[], None] = lambda: None,
) -> FloatArray:
    """Filtered ranks (2 n,) of the tails, then of the heads of `edges`; ties get the mean rank.

    Two partitions are in memory at a time. For each partition of sources, the true targets are
    scored in every partition, then all candidates.

    Args:
        look: called between blocks of queries; an exception ends the ranking.
    """
    partitioning = tables.partitioning
    queries, targets = both_directions(edges, index.num_relations)
    above, ties = np.zeros((2, len(queries)))
    for source in range(partitioning.count):
        mine = np.flatnonzero(partitioning.partition[queries[:, 0]] == source)
        true = torch.empty(len(mine), device=tables.device)
        for part in range(partitioning.count):
            among = np.flatnonzero(partitioning.partition[targets[mine]] == part)
            for block, query in _queries(
                tables, relations, queries[mine], among, (source, part), options
            ):
                look()
                place = tables.rows(part).start + partitioning.offset[targets[mine[block]]]
                target = tables.vectors[torch.from_numpy(place).to(tables.device)]
                true[torch.from_numpy(block).to(tables.device)] = options.operator.compare(
                    query, target
                )
        for part in range(partitioning.count):
            for block, query in _queries(
                tables, relations, queries[mine], np.arange(len(mine)), (source, part), options
            ):
                look()
                scores = options.operator.compare_all(query, tables.vectors[tables.rows(part)])
                hide(scores, index.of(queries[mine[block]]), partitioning, part)
                limit = true[torch.from_numpy(block).to(tables.device)].unsqueeze(1)
                # What is no number counts as above: it is no better than any other.
                above[mine[block]] += (~(scores <= limit)).sum(1).cpu().numpy()
                ties[mine[block]] += (scores == limit).sum(1).cpu().numpy()
    return 1 + above + ties / 2


def _queries(
    tables: Tables,
    relations: Tensor,
    queries: IntArray,
    among: IntArray,
    pair: tuple[int, int],
    options: UpdateOptions,
) -> Iterator[tuple[IntArray, Tensor]]:
    """Blocks of the queries `among` with their vectors; both partitions of the pair are open."""
    if not len(among):
        return
    begin, _ = tables.open(pair, change=False)
    size = max(1, min(512, _SCORES // max(tables.partitioning.sizes)))
    for start in range(0, len(among), size):
        block = among[start : start + size]
        place = torch.from_numpy(begin + tables.partitioning.offset[queries[block, 0]]).to(
            tables.device
        )
        numbers = torch.from_numpy(queries[block, 1]).to(tables.device)
        yield block, options.operator.apply(tables.vectors[place], relations[numbers])


def hide(
    scores: Tensor, found: tuple[IntArray, IntArray], partitioning: Partitioning, part: int
) -> None:
    """Exclude known targets, including the true one, from scores (queries, entities of `part`)."""
    rows, entities = found
    here = partitioning.partition[entities] == part
    columns = torch.from_numpy(partitioning.offset[entities[here]]).to(scores.device)
    scores[torch.from_numpy(rows[here]).to(scores.device), columns] = -torch.inf


def summary(found: FloatArray) -> dict[str, float]:
    """Mean reciprocal rank, and the shares of ranks within 1, 3 and 10."""
    return {
        "mrr": float((1 / found).mean()),
        **{f"hits@{k}": float((found <= k).mean()) for k in (1, 3, 10)},
    }
