"""Multi-head attention with three layouts of its input projections that compute the same function.

| layout        | parameters (rows, hidden)
|
|---------------|-------------------------------------------------------------------------------------|
| `interleaved` | `query` (hidden, hidden), `key_value` (num_heads * 2 * head_dim, hidden) by head
|
| `separate`    | `query` (hidden, hidden), `key_value` (2 * hidden, hidden): all keys, all values
|
| `packed`      | `query_key_value` (3 * hidden, hidden): all queries, all keys, all values
|

Cross-attention has two inputs, so there `packed` means `separate`. `attention_layouts` converts
between the layouts.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from workers.device.precision import device_type

Projected = tuple[Tensor, Tensor, Tensor]


class Attention(nn.Module):
    """Multi-head scaled dot-product attention.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762. Shapes: b sentences, q query positions, k
    key positions, h heads (fewer on a tensor-parallel rank), d head_dim.

    Args:
        width: of input and output; a multiple of num_heads.
        layout: "interleaved", "separate" or "packed".
        kernel: "auto", "sdpa", "math" or "fused". "auto" is "math" on CPUs and "sdpa" elsewhere;
            "fused" is torch's multi_head_attention_forward, including the projections (its inner
            kernel is sdpa).
        cross: whether keys and values come from another sequence.
    """

    def __init__(
        self, width: int, num_heads: int, layout: str, kernel: str, *, cross: bool = False
    ) -> None:
        super().__init__()
        self.layout = "separate" if cross and layout == "packed" else layout
        self.kernel = kernel
        self.head_dim = width // num_heads
        if self.layout == "packed":
            self.query_key_value = nn.Linear(width, 3 * width)
        else:
            self.query = nn.Linear(width, width)
            self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from x (b, q, width) to memory (b, k, width), by default to x itself.

        Args:
            mask: (b, 1, 1, k), True for keys that may be attended to, or a float bias for the
                scores. If mask is None and memory is None, attention is causal.
        """
        if self.kernel == "fused":
            return self._forward_fused(x, memory, mask)
        if memory is None:
            return self.attend(*self.project(x), mask, causal=mask is None)
        return self.attend(self.project_query(x), *self.project_memory(memory), mask)

    def _forward_fused(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Attend by torch's function for a whole attention block; its tensors are batch-second."""
        query = x.transpose(0, 1)
        key = (x if memory is None else memory).transpose(0, 1)
        weight, bias = self.packed()
        causal = None
        if memory is None and mask is None:
            causal = torch.full(
                (len(query), len(query)), -math.inf, dtype=x.dtype, device=x.device
            ).triu(1)
        found, _ = nn.functional.multi_head_attention_forward(
            query, key, key, x.shape[2], x.shape[2] // self.head_dim, weight, bias, None, None,
            False, 0.0, self.output.weight, self.output.bias, training=self.training,
            need_weights=False, attn_mask=causal, is_causal=causal is not None,
            key_padding_mask=None if mask is None else ~mask[:, 0, 0],
        )  # fmt: skip
        return found.transpose(0, 1)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Weight (3 * hidden, hidden) and bias of the input projections, converted to `packed`."""
        if self.layout == "packed":
            return self.query_key_value.weight, self.query_key_value.bias
        parts = [self.key_value.weight, self.key_value.bias]
        if self.layout == "interleaved":
            heads = [torch.unflatten(part, 0, (-1, 2, self.head_dim)) for part in parts]
            parts = [part.transpose(0, 1).flatten(0, 2) for part in heads]
        return torch.cat([self.query.weight, parts[0]]), torch.cat([self.query.bias, parts[1]])

    def project(self, x: Tensor) -> Projected:
        """Queries, keys and values (b, h, q, d) of x (b, q, width)."""
        if self.layout == "packed":
            return cast(Projected, self._chunks(self.query_key_value(x), 3))
        return self.project_query(x), *self.project_memory(x)

    def project_query(self, x: Tensor) -> Tensor:
        """Queries (b, h, q, d) of x (b, q, width); not for the packed layout."""
        return self._chunks(self.query(x), 1)[0]

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (b, h, k, d) of memory (b, k, width); not for the packed layout."""
        projected = self.key_value(memory)
        if self.layout == "interleaved":
            b, k, rows = projected.shape
            by_head = projected.view(b, k, rows // (2 * self.head_dim), 2, self.head_dim)
            heads = by_head.transpose(1, 2)
            return heads[..., 0, :], heads[..., 1, :]
        key, value = self._chunks(projected, 2)
        return key, value

    def _chunks(self, projected: Tensor, count: int) -> tuple[Tensor, ...]:
        """Split (b, n, count * h * d) into `count` consecutive parts (b, h, n, d)."""
        b, n, rows = projected.shape
        whole = projected.view(b, n, count, rows // (count * self.head_dim), self.head_dim)
        return tuple(whole[:, :, i].transpose(1, 2) for i in range(count))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """Output (b, q, width) of queries (b, h, q, d) over keys and values (b, h, k, d)."""
        if self.kernel == "math" or (self.kernel == "auto" and device_type(query) == "cpu"):
            mixed = _attend_plainly(query, key, value, mask, causal)
        else:
            mixed = nn.functional.scaled_dot_product_attention(
                query, key, value, mask, is_causal=causal
            )
        return cast(Tensor, self.output(mixed.transpose(1, 2).flatten(2)))


def _attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """Attention as two batched matrix products; for short sentences faster on CPUs."""
    b, h, q, d = query.shape
    k = key.shape[2]
    folded = [x.reshape(b * h, x.shape[2], d) for x in (query, key, value)]
    bias = query.new_zeros(1)
    if causal:
        bias = query.new_full((q, k), -math.inf).triu(1)
    elif mask is not None:
        if mask.dtype == torch.bool:
            mask = query.new_zeros(mask.shape).masked_fill(~mask, -math.inf)
        bias = mask.expand(b, h, 1, k).reshape(b * h, 1, k)
    masked = causal or mask is not None
    scores = torch.baddbmm(
        bias,
        folded[0],
        folded[1].transpose(1, 2),
        alpha=1 / math.sqrt(d),
        beta=1 if masked else 0,
    )
    return torch.bmm(scores.softmax(-1), folded[2]).view(b, h, q, d)
