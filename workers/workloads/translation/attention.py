"""Multi-head attention whose input projections are kept in one of three layouts that compute the same function.

| layout        | parameters (rows, hidden)                                                                  |
|---------------|--------------------------------------------------------------------------------------------|
| `interleaved` | `query` (hidden, hidden), `key_value` (num_heads * 2 * head_dim, hidden), grouped by head   |
| `separate`    | `query` (hidden, hidden), `key_value` (2 * hidden, hidden): all keys, then all values       |
| `packed`      | `query_key_value` (3 * hidden, hidden): all queries, then all keys, then all values         |

Attention to another sequence has two inputs, so that `packed` is `separate` there. `layouts` converts between them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYOUTS = ("interleaved", "separate", "packed")
KERNELS = ("auto", "sdpa", "math")


class Attention(nn.Module):
    """Scaled dot-product attention with several heads (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762).

    Args:
        width: of input and output; num_heads divides it.
        cross: whether keys and values come from another sequence.
        layout: one of `LAYOUTS`; kernel: one of `KERNELS`; "auto" is math on CPUs, sdpa elsewhere.

    Shapes: b sentences, q query positions, k key positions, h heads (fewer on a tensor-parallel rank), d head_dim.
    """

    def __init__(self, width: int, num_heads: int, layout: str, kernel: str, *, cross: bool = False) -> None:
        super().__init__()
        self.layout = "separate" if cross and layout == "packed" else layout
        self.kernel, self.head_dim = kernel, width // num_heads
        if self.layout == "packed":
            self.query_key_value = nn.Linear(width, 3 * width)
        else:
            self.query = nn.Linear(width, width)
            self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend from x (b, q, width) to memory (b, k, width), or to x itself where there is none.

        Args:
            mask: (b, 1, 1, k), True where a key may be attended to; where there is none, a position of x attends to
                itself and what is before it.
        """
        if memory is None:
            return self.attend(*self.project(x), mask, causal=mask is None)
        return self.attend(self.project_query(x), *self.project_memory(memory), mask)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (b, h, q, d) of x (b, q, width)."""
        if self.layout == "packed":
            query, key, value = self._chunks(self.query_key_value(x), 3)
            return query, key, value
        return self.project_query(x), *self.project_memory(x)

    def project_query(self, x: Tensor) -> Tensor:
        """Queries (b, h, q, d) of x (b, q, width); not in the packed layout."""
        return self._chunks(self.query(x), 1)[0]

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (b, h, k, d) of memory (b, k, width); not in the packed layout."""
        projected = self.key_value(memory)
        if self.layout == "interleaved":
            b, k, rows = projected.shape
            heads = projected.view(b, k, rows // (2 * self.head_dim), 2, self.head_dim).transpose(1, 2)
            return heads[..., 0, :], heads[..., 1, :]
        key, value = self._chunks(projected, 2)
        return key, value

    def _chunks(self, projected: Tensor, count: int) -> tuple[Tensor, ...]:
        """Parts (b, h, n, d) of (b, n, count * h * d) that lie one after the other."""
        b, n, rows = projected.shape
        whole = projected.view(b, n, count, rows // (count * self.head_dim), self.head_dim)
        return tuple(whole[:, :, i].transpose(1, 2) for i in range(count))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Output (b, q, width) of queries (b, h, q, d) over keys and values (b, h, k, d)."""
        if self.kernel == "math" or (self.kernel == "auto" and query.device.type == "cpu"):
            mixed = _attend_plainly(query, key, value, mask, causal)
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


def _attend_plainly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Three batched matrix products' worth of the same; for short sentences several times faster on CPUs."""
    b, h, q, d = query.shape
    k = key.shape[2]
    bias = query.new_zeros(1, 1, 1)
    if causal:
        bias = query.new_full((q, k), -math.inf).triu(1)
    elif mask is not None:
        bias = query.new_zeros(mask.shape).masked_fill(~mask, -math.inf).expand(b, h, 1, k).reshape(b * h, 1, k)
    folded = [x.reshape(b * h, x.shape[2], d) for x in (query, key, value)]
    scores = torch.baddbmm(bias, folded[0], folded[1].transpose(1, 2), alpha=1 / math.sqrt(d))
    return torch.bmm(scores.softmax(-1), folded[2]).view(b, h, q, d)
