"""The trained tables as a model in real arithmetic, for export: (source, relation) to the scores of all entities."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LinkScorer(nn.Module):
    """Scores of every entity as the other end of an edge.

    Args:
        model: name of the operator; entities: (n, dimension); relations: (m, dimension).
        reciprocal: relations m / 2 and on are those of the opposite directions; else they are inverses of the first.
    """

    def __init__(self, model: str, entities: Tensor, relations: Tensor, reciprocal: bool) -> None:
        super().__init__()
        self.model, self.reciprocal = model, reciprocal
        self.entities, self.relations = nn.Parameter(entities), nn.Parameter(relations)

    def forward(self, source: Tensor, relation: Tensor) -> Tensor:
        """(b,) and (b,) numbers to (b, n); a relation of m (m / 2 where reciprocal) and on asks for heads."""
        count = len(self.relations)
        opposite = (relation >= count).unsqueeze(1) & (not self.reciprocal)
        vectors = self.relations[relation if self.reciprocal else relation % count]
        query = self._query(self.entities[source], vectors, opposite)
        if self.model in ("complex", "distmult"):
            return query @ self.entities.t()
        difference = query.unsqueeze(1) - self.entities
        if self.model == "transe":
            return -difference.abs().sum(-1)
        even, odd = difference[..., ::2], difference[..., 1::2]
        return -(even.square() + odd.square()).clamp(min=1e-12).sqrt().sum(-1)

    def _query(self, source: Tensor, vectors: Tensor, opposite: Tensor) -> Tensor:
        if self.model == "distmult":
            return source * vectors
        if self.model == "transe":
            return torch.where(opposite, source - vectors, source + vectors)
        real, imaginary = vectors[:, ::2], vectors[:, 1::2]
        if self.model == "rotate":
            real, imaginary = vectors[:, ::2].cos(), vectors[:, ::2].sin()
        imaginary = torch.where(opposite, -imaginary, imaginary)
        a, b = source[:, ::2], source[:, 1::2]
        return torch.stack([a * real - b * imaginary, a * imaginary + b * real], -1).flatten(1)
