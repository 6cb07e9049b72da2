"""The softmax loss of edges against shared candidates, with its gradient in closed form.

Autograd would pass six times over the matrix of scores; this code reads it twice and keeps nothing
of its size.
"""

from typing import Any, cast

import torch
from torch import Tensor

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
