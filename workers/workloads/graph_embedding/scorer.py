"""The trained tables as an exportable model: (source, relation) to scores of all entities."""

import torch
from torch import Tensor, nn


class LinkScorer(nn.Module):
    """Scores of every entity as the other end of an edge, in real arithmetic.

    Args:
        model: name of the operator.
        entities: (n, dimension).
        relations: (m, dimension).
        reciprocal: whether relations from m / 2 on are the opposite directions; else the opposite
            is the inverse.
    """

    def __init__(self, model: str, entities: Tensor, relations: Tensor, reciprocal: bool) -> None:
        super().__init__()
        self.model = model
        self.reciprocal = reciprocal
        self.entities = nn.Parameter(entities)
        self.relations = nn.Parameter(relations)

    def forward(self, source: Tensor, relation: Tensor) -> Tensor:
        """(b,) and (b,) numbers to scores (b, n).

        A relation from m on (m / 2 if reciprocal) asks for heads.
        """
        count = len(self.relations)
        opposite = (relation >= count).unsqueeze(1) & (not self.reciprocal)
        vectors = self.relations[relation if self.reciprocal else relation % count]
        query = self._query(self.entities[source], vectors, opposite)
        if self.model in ("complex", "distmult"):
            return query @ self.entities.t()
        difference = query.unsqueeze(1) - self.entities
        if self.model == "transe":
            return -difference.abs().sum(-1)
        even = difference[..., ::2]
        odd = difference[..., 1::2]
        return -(even.square() + odd.square()).clamp(min=1e-12).sqrt().sum(-1)

    def _query(self, source: Tensor, vectors: Tensor, opposite: Tensor) -> Tensor:
        if self.model == "distmult":
            return source * vectors
        if self.model == "transe":
            return torch.where(opposite, source - vectors, source + vectors)
        real = vectors[:, ::2]
        imaginary = vectors[:, 1::2]
        if self.model == "rotate":
            imaginary = real.sin()
            real = real.cos()
        imaginary = torch.where(opposite, -imaginary, imaginary)
        a = source[:, ::2]
        b = source[:, 1::2]
        return torch.stack([a * real - b * imaginary, a * imaginary + b * real], -1).flatten(1)
