"""How edges are scored, and one update: a batch of edges against shared negatives.

TransE, DistMult, ComplEx and RotatE. ComplEx and RotatE read a vector of `dimension` real numbers
as dimension / 2 complex numbers. Every model has score(head, relation, tail) = compare(apply(head,
relation), tail), so that one query is compared with many candidates. Only touched rows have
gradients.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

Pairs = tuple[Tensor, Tensor]
_NEVER = -1e30  # score of a target among its own candidates
_EPSILON = 1e-10


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


def equal_pairs(targets: Tensor, candidates: Tensor) -> Pairs:
    """Rows and columns of the scores at which the candidate is the target itself.

    Args:
        targets: ids, (b,).
        candidates: ids, (k,).
    """
    columns = torch.isin(candidates, targets).nonzero().squeeze(1)
    rows, at = (targets.unsqueeze(1) == candidates[columns]).nonzero(as_tuple=True)
    return rows, columns[at]


class _SharedSoftmax(torch.autograd.Function):
    """The loss and its gradients.

    With query q, target t, candidates c, their softmax p among themselves, and s = P(not t), the
    gradients are s (E_p[c] - t) for q, -s q for t, and the sum over queries of s p q for c.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, target: Tensor, candidates: Tensor, same: Pairs, dtype: torch.dtype
    ) -> Tensor:
        """Summed loss, scalar; see `shared_softmax`."""
        q, c = (x.to(dtype) for x in (query, candidates))
        scores = q @ c.t()
        scores = scores.float() if dtype is torch.bfloat16 else scores
        scores[same] = _NEVER
        positive = (query * target).sum(1)
        p = scores.softmax(1)
        others = scores.amax(1) - p.amax(1).log()  # logsumexp of the candidates
        total = torch.logaddexp(positive, others)
        share = (others - total).exp().unsqueeze(1)
        p = p.to(dtype)
        by_query = share * ((p @ c).to(query.dtype) - target)
        by_candidates = (p.t() @ (share * query).to(dtype)).to(query.dtype)
        ctx.save_for_backward(by_query, -share * query, by_candidates)
        return (total - positive).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The saved gradients, scaled."""
        (scale,) = gradients
        return *(scale * saved for saved in ctx.saved_tensors), None, None


def shared_softmax(
    query: Tensor, target: Tensor, candidates: Tensor, same: Pairs, dtype: torch.dtype
) -> Tensor:
    """Sum of -log softmax of each query's score with its target, among that and all candidates.

    Args:
        query, target: (b, d), scored by their dot product.
        candidates: (k, d).
        same: rows and columns to ignore, see `equal_pairs`.
        dtype: of the matrix products.
    """
    return cast(Tensor, _SharedSoftmax.apply(query, target, candidates, same, dtype))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class UpdateOptions:
    """Options of an update.

    Args:
        model: one of `OPERATORS`.
        regularization: weight of the nuclear 3-norm.
        dtype: of the products between queries and negatives.
    """

    model: str = "complex"
    regularization: float = 0.0
    dtype: torch.dtype = torch.float32

    @property
    def operator(self) -> Operator:
        """The model."""
        return OPERATORS[self.model]


def gradients(
    entities: Tensor,
    relations: Tensor,
    edges: Tensor,
    negatives: Tensor,
    options: UpdateOptions,
) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Mean loss of a batch, and the gradients of the touched rows.

    The loss is softmax cross-entropy over an edge and its negatives, at both ends.

    Args:
        entities: (n, dimension).
        relations: (m, dimension), the reciprocal relations in the second half.
        edges: rows of head, relation and tail, (b, 3).
        negatives: rows of entities, (k,).

    Returns:
        The mean loss per edge, without the penalty; rows and gradients of entities; the same of
            relations.
    """
    size, operator, dtype = len(edges), options.operator, options.dtype
    head, relation, tail = edges.unbind(1)
    rows, local = torch.cat([head, tail, negatives]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    pairs = torch.cat([relation, relation + len(relations) // 2])
    relation_rows, relation_local = pairs.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    with torch.enable_grad():
        vectors = entities.index_select(0, rows).requires_grad_()
        moves = relations.index_select(0, relation_rows).requires_grad_()
        sizes = [size, size, len(negatives)]
        h, t, others = torch.split(vectors.index_select(0, local), sizes)
        r = moves.index_select(0, relation_local)
        forth, back = r.chunk(2)
        heads, tails, drawn = torch.split(local, sizes)
        loss = _loss(operator, operator.apply(h, forth), t, others, (tails, drawn), dtype)
        loss = loss + _loss(operator, operator.apply(t, back), h, others, (heads, drawn), dtype)
        total = loss
        if options.regularization:
            penalty = 2 * operator.penalty(h) + 2 * operator.penalty(t) + operator.penalty(r)
            total = loss + options.regularization * penalty
        by_vectors, by_moves = torch.autograd.grad(total / size, [vectors, moves])
    return loss.detach() / (2 * size), (rows, by_vectors), (relation_rows, by_moves)


def _loss(
    operator: Operator,
    query: Tensor,
    target: Tensor,
    others: Tensor,
    ids: tuple[Tensor, Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """Summed loss of queries (b, dimension) and their targets against the others (k, dimension)."""
    same = equal_pairs(*ids)
    if operator.is_dot:
        return shared_softmax(query, target, others, same, dtype)
    positive = operator.compare(query, target)
    negative = operator.compare_all(query, others, dtype)
    negative = negative.index_put(same, negative.new_tensor(-torch.inf))
    return (torch.logaddexp(positive, negative.logsumexp(1)) - positive).sum()


def adagrad(
    table: Tensor, state: Tensor, rows: Tensor, gradient: Tensor, learning_rate: float
) -> None:
    """Adagrad (Duchi et al. 2011) for some rows."""
    sums = state.index_select(0, rows).addcmul_(gradient, gradient)
    state.index_copy_(0, rows, sums)
    moved = table.index_select(0, rows).addcdiv_(
        gradient, sums.sqrt_().add_(_EPSILON), value=-learning_rate
    )
    table.index_copy_(0, rows, moved)
