"""Makes a table of learning curves that was never used to change the stopper.

    python benchmarks/stoppers/make_unseen.py

Embeddings of a graph of relations: few free parameters fit, many overfit. Everything else is as in
`make_curves.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.stoppers.make_curves import Adam, Grid, make_tables, normal, scaled, seeded

GRAPH: Final[Grid] = {
    "lr": [10 ** (-3 + 2.5 * i / 7) for i in range(8)],
    "decay": [1e-3, 1e-2, 1e-1, 1.0],
    "scale": [0.1, 0.3, 1.0],
    "width": [4, 8, 16, 32],
}
ENTITIES = 60
RELATIONS = 6


def graph(shape: dict[str, float], each: dict[str, Tensor]) -> Iterator[Tensor]:
    """Validation cross-entropy of the tail; a report after every 8 updates.

    The model is DistMult (Yang et al., 2015).
    """
    random = seeded(11)
    count = len(each["lr"])
    width = int(shape["width"])
    heads, relations, tails = _facts(random)
    split = int(0.75 * len(heads))
    w = [
        scaled(normal(count, ENTITIES, width, 1.0), each["scale"]),
        normal(count, RELATIONS, width, 1.0),
    ]
    descend = Adam(w, each)

    def loss(rows: Tensor) -> Tensor:
        scores = torch.bmm(
            w[0][:, heads[rows]] * w[1][:, relations[rows]], w[0].transpose(1, 2)
        ).flatten(0, 1)
        return (
            F.cross_entropy(scores, tails[rows].repeat(count), reduction="none")
            .view(count, -1)
            .mean(1)
        )

    for _ in range(50):
        for _ in range(8):
            descend(loss(torch.randint(split, (128,), generator=random)))
        with torch.no_grad():
            yield loss(torch.arange(split, len(heads)))


def _facts(random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Heads, relations and tails of the facts.

    Every pair of head and relation has three tails: two by hidden vectors and one at random.
    """
    hidden = torch.randn(ENTITIES, 5, generator=random)
    links = torch.randn(RELATIONS, 5, generator=random)
    pairs = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(RELATIONS))
    best = ((hidden[pairs[:, 0]] * links[pairs[:, 1]]) @ hidden.T).topk(2).indices
    tails = torch.cat(
        [best, torch.randint(ENTITIES, (len(pairs), 1), generator=random)], 1
    ).flatten()
    order = torch.randperm(len(tails), generator=random)
    triples = torch.cat([pairs.repeat_interleave(3, 0), tails[:, None]], 1)[order]
    return triples[:, 0], triples[:, 1], triples[:, 2]


if __name__ == "__main__":
    tasks = {"graph": (GRAPH, graph, ("width",), lambda s: 0.5 + s["width"] / 16)}
    make_tables(tasks, __doc__)
