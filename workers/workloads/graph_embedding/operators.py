"""How relations transform entity vectors, and how vectors are compared.

TransE, DistMult, ComplEx and RotatE. ComplEx and RotatE read a vector of `dimension` real numbers
as dimension / 2 complex numbers. Every model has score(head, relation, tail) = compare(apply(head,
relation), tail), so that one query is compared with many candidates.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


def as_complex(x: Tensor) -> Tensor:
    """View (..., 2 d) real as (..., d) complex; shares memory."""
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def as_real(x: Tensor) -> Tensor:
    """View (..., d) complex as (..., 2 d) real; shares memory."""
    return torch.view_as_real(x).flatten(-2)


class Operator(ABC):
    """One model; vectors are (..., dimension) real."""

    name: str
    is_dot = True  # whether `compare` is the dot product

    @abstractmethod
    def apply(self, source: Tensor, relation: Tensor) -> Tensor:
        """The query: the source transformed by the relation; same shape."""

    def compare(self, query: Tensor, target: Tensor) -> Tensor:
        """Scores of pairs: (b, dimension) each to (b,)."""
        return (query * target).sum(-1)

    def compare_all(
        self, query: Tensor, candidates: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Scores of all pairs: (b, dimension) and (n, dimension) to (b, n); products in `dtype`."""
        return (query.to(dtype) @ candidates.to(dtype).t()).float()

    def penalty(self, x: Tensor) -> Tensor:
        """Sum of cubed magnitudes of the coordinates (nuclear 3-norm of Lacroix et al. 2018)."""
        return x.abs().pow(3).sum()


class TransE(Operator):
    """score = -|h + r - t|_1 (Bordes et al. 2013, https://papers.nips.cc/paper/5071)."""

    name = "transe"
    is_dot = False

    def apply(self, source: Tensor, relation: Tensor) -> Tensor:
        """Translation."""
        return source + relation

    def compare(self, query: Tensor, target: Tensor) -> Tensor:
        """Negative L1 distance."""
        return -(query - target).abs().sum(-1)

    def compare_all(
        self, query: Tensor, candidates: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Negative L1 distances."""
        return -torch.cdist(query, candidates, p=1.0)


class DistMult(Operator):
    """score = <h, r, t> (Yang et al. 2015, arXiv:1412.6575)."""

    name = "distmult"

    def apply(self, source: Tensor, relation: Tensor) -> Tensor:
        """Scaling."""
        return source * relation


class _ComplexOperator(Operator):
    """A model whose vectors are (..., dimension / 2) complex."""

    def penalty(self, x: Tensor) -> Tensor:
        """Sum of cubed moduli, with a finite gradient at 0."""
        return x.square().reshape(-1, 2).sum(-1).pow(1.5).sum()


class ComplEx(_ComplexOperator):
    """score = Re <h, r, conj t> with complex vectors (Trouillon et al. 2016, arXiv:1606.06357)."""

    name = "complex"

    def apply(self, source: Tensor, relation: Tensor) -> Tensor:
        """Complex product; comparing it with t is a real dot product."""
        return as_real(as_complex(source) * as_complex(relation))


class RotatE(_ComplexOperator):
    """score = -sum |h r - t| with |r| = 1 per complex coordinate.

    Sun et al. 2019, arXiv:1902.10197.
    """

    name = "rotate"
    is_dot = False
    chunk_bytes = 64 << 20

    def apply(self, source: Tensor, relation: Tensor) -> Tensor:
        """Rotation by the angles of the relation, which are at the even indices of its vector."""
        angle = relation[..., ::2]
        return as_real(as_complex(source) * torch.polar(torch.ones_like(angle), angle))

    def compare(self, query: Tensor, target: Tensor) -> Tensor:
        """Negative sum of moduli."""
        return -_modulus(query - target).sum(-1)

    def compare_all(
        self, query: Tensor, candidates: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Negative sums of moduli, in chunks of queries whose differences fit in `chunk_bytes`."""
        rows = max(1, self.chunk_bytes // (4 * candidates.numel() or 1))
        parts = [-_modulus(q.unsqueeze(1) - candidates).sum(-1) for q in torch.split(query, rows)]
        return torch.cat(parts) if parts else query.new_zeros(0, len(candidates))


def _modulus(x: Tensor) -> Tensor:
    """(..., 2 d) to (..., d), with gradient 0 at 0."""
    return x.reshape(*x.shape[:-1], -1, 2).square().sum(-1).clamp(min=1e-12).sqrt()


OPERATORS = {operator.name: operator for operator in (TransE(), DistMult(), ComplEx(), RotatE())}
