"""One update: a batch of edges against shared negatives, with gradients of touched rows only."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from .operators import OPERATORS, Operator

Pairs = tuple[Tensor, Tensor]


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
        scores[same] = -torch.inf
        positive = (query * target).sum(1)
        top = scores.amax(1) if scores.shape[1] else torch.full_like(positive, -torch.inf)
        p = scores.softmax(1)
        others = top - p.amax(1).log() if scores.shape[1] else top  # logsumexp of the candidates
        alone = top == -torch.inf  # the target is the only candidate
        if alone.any():
            p[alone] = 0.0
            others[alone] = -torch.inf
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


_EPSILON = 1e-10


@dataclass(frozen=True)
class UpdateOptions:
    """Options of an update.

    Args:
        model: one of `OPERATORS`.
        reciprocal: whether opposite directions have their own relations; else they use the inverse.
        loss: "softmax" over an edge and its negatives, "logistic", or "margin" ranking.
        negatives: random entities that each edge of the batch is compared with, at both ends.
        batch_negatives: whether edges are also compared with the ends of the batch's other edges.
        regularization: weight of the nuclear 3-norm.
        margin: of the "margin" loss.
        dtype: of the products between queries and negatives.
    """

    model: str = "complex"
    reciprocal: bool = True
    loss: str = "softmax"
    negatives: int = 1000
    batch_negatives: bool = False
    regularization: float = 0.05
    margin: float = 1.0
    dtype: torch.dtype = torch.float32

    @property
    def operator(self) -> Operator:
        """The model."""
        return OPERATORS[self.model]


def gradients(
    entities: Tensor, relations: Tensor, edges: Tensor, negatives: Tensor, options: UpdateOptions
) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Mean loss of a batch, and the gradients of the touched rows.

    Args:
        entities: (n, dimension).
        relations: (m, dimension), reciprocal relations in the second half.
        edges: rows of head, relation and tail, (b, 3).
        negatives: rows of entities, (k,).

    Returns:
        The mean loss per edge, without the penalty; rows and gradients of entities; the same of
            relations.
    """
    size = len(edges)
    half = len(relations) // (2 if options.reciprocal else 1)
    head, relation, tail = edges.unbind(1)
    rows, local = torch.cat([head, tail, negatives]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    pairs = torch.cat([relation, relation + half]) if options.reciprocal else relation
    relation_rows, relation_local = pairs.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    with torch.enable_grad():
        vectors = entities.index_select(0, rows).requires_grad_()
        moves = relations.index_select(0, relation_rows).requires_grad_()
        sizes = [size, size, len(negatives)]
        h, t, others = torch.split(vectors.index_select(0, local), sizes)
        r = moves.index_select(0, relation_local)
        forth, back = r.chunk(2) if options.reciprocal else (r, r)
        ids = torch.split(local, sizes)
        operator = options.operator
        inverse = not options.reciprocal
        tails = _loss(operator.apply(h, forth), t, others, (ids[1], ids[2]), options)
        heads = _loss(operator.apply(t, back, inverse), h, others, (ids[0], ids[2]), options)
        loss = (tails + heads) / (2 * size)
        total = 2 * loss
        if options.regularization:
            penalty = 2 * operator.penalty(h) + 2 * operator.penalty(t) + operator.penalty(r)
            total = total + options.regularization / size * penalty
        by_vectors, by_moves = torch.autograd.grad(total, [vectors, moves])
    return loss.detach(), (rows, by_vectors), (relation_rows, by_moves)


def _loss(
    query: Tensor,
    target: Tensor,
    others: Tensor,
    ids: tuple[Tensor, Tensor],
    options: UpdateOptions,
) -> Tensor:
    """Summed loss of queries (b, dimension) and their targets against the others (k, dimension)."""
    candidates = torch.cat([others, target]) if options.batch_negatives else others
    candidate_ids = torch.cat([ids[1], ids[0]]) if options.batch_negatives else ids[1]
    if options.loss == "softmax" and options.operator.is_dot:
        return shared_softmax(
            query, target, candidates, equal_pairs(ids[0], candidate_ids), options.dtype
        )
    positive = options.operator.compare(query, target)
    negative = options.operator.compare_all(query, candidates, options.dtype)
    negative = negative.masked_fill(candidate_ids == ids[0].unsqueeze(1), -torch.inf)
    if options.loss == "softmax":
        return (torch.logaddexp(positive, negative.logsumexp(1)) - positive).sum()
    if options.loss == "logistic":
        against = nn.functional.softplus(negative).sum(1) / negative.shape[1]
        return (nn.functional.softplus(-positive) + against).sum()
    return (negative - positive.unsqueeze(1) + options.margin).relu().sum() / negative.shape[1]


def adagrad(
    table: Tensor, state: Tensor, rows: Tensor, gradient: Tensor, learning_rate: float
) -> None:
    """Adagrad (Duchi et al. 2011) for some rows; one state per row if `state` has width 1."""
    sums = state.index_select(0, rows)
    if state.shape[1] > 1:
        sums.addcmul_(gradient, gradient)
    else:
        sums.add_(gradient.square().mean(1, keepdim=True))
    state.index_copy_(0, rows, sums)
    moved = table.index_select(0, rows).addcdiv_(
        gradient, sums.sqrt_().add_(_EPSILON), value=-learning_rate
    )
    table.index_copy_(0, rows, moved)
