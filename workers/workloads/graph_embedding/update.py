"""One update: a batch of edges against shared negatives, with gradients of touched rows only."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .operators import OPERATORS, Operator
from .softmax import equal_pairs, shared_softmax

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
