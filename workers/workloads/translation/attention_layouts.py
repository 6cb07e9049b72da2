"""Exact conversions between the attention layouts and the canonical layout of checkpoints.

The canonical layout has separate `query`, `key` and `value` (hidden, hidden). Conversion only moves
rows, so every checkpoint loads under every layout bit for bit. Gradients and optimizer state
convert in the same way; what is not there row by row (a step count, moments that all rows share) is
copied to every part.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_PARTS = ("query", "key", "value")
_FUSED = {"query_key_value": _PARTS, "key_value": _PARTS[1:]}
CROSS = "cross_attention."  # name of the cross-attention modules
_FUSED_NAME = re.compile(r"(.*\.)(query_key_value|key_value)(\.\w+)")
_PART_NAME = re.compile(r"(.*\.)(key|value)(\.\w+)")


def canonical(state: Mapping[str, Tensor], layout: str, head_dim: int) -> dict[str, Tensor]:
    """Convert the named tensors of a model with `layout` to the canonical layout."""
    result = {}
    for name, tensor in state.items():
        match = _FUSED_NAME.fullmatch(name)
        if match is None:
            result[name] = tensor
            continue
        for part, rows in split(tensor, match[2], layout, head_dim).items():
            result[match[1] + part + match[3]] = rows
    return result


def native(state: Mapping[str, Tensor], layout: str, head_dim: int) -> dict[str, Tensor]:
    """The inverse of `canonical`."""
    result = dict(state)
    for name in state:
        match = _PART_NAME.fullmatch(name)
        if match is None or match[2] != "key":
            continue
        packed = layout == "packed" and not match[1].endswith(CROSS)
        fused = "query_key_value" if packed else "key_value"
        names = {part: match[1] + part + match[3] for part in _FUSED[fused]}
        parts = {part: result.pop(full) for part, full in names.items()}
        result[match[1] + fused + match[3]] = join(parts, fused, layout, head_dim)
    return result


def split(tensor: Tensor, name: str, layout: str, head_dim: int) -> dict[str, Tensor]:
    """Split the tensor `name` ("key_value" or "query_key_value") of a layout into its parts."""
    parts = _FUSED[name]
    if tensor.ndim == 0 or len(tensor) == 1:
        return {part: tensor.clone() for part in parts}
    if layout == "interleaved":
        by_head = torch.unflatten(tensor, 0, (-1, len(parts), head_dim)).unbind(1)
        return {part: rows.flatten(0, 1) for part, rows in zip(parts, by_head, strict=True)}
    return {part: rows.clone() for part, rows in zip(parts, tensor.chunk(len(parts)), strict=True)}


def join(parts: Mapping[str, Tensor], name: str, layout: str, head_dim: int) -> Tensor:
    """The inverse of `split`."""
    rows = [parts[part] for part in _FUSED[name]]
    if rows[0].ndim == 0 or len(rows[0]) == 1:
        return rows[0].clone()
    if layout == "interleaved":
        by_head = [torch.unflatten(part, 0, (-1, head_dim)) for part in rows]
        return torch.stack(by_head, 1).flatten(0, 2)
    return torch.cat(rows)
