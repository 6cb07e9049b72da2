"""Layers of encoder and decoder in inference: weights laid out for it once. Shapes as in `state`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import Attention
from .decoder_state import DecoderState, LayerCache
from .matrix_products import Product, default_products, product, product_of, then_added
from .model import DecoderLayer, EncoderLayer


class EncoderStep:
    """Products of an encoder layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        self.norms = layer.attention_norm, layer.feed_forward_norm
        self.project, self.output = _inputs(layer.attention), product_of(layer.attention.output)
        self.inner = product_of(layer.feed_forward.inner, relu=True)
        self.outer = product_of(layer.feed_forward.outer)
        self.head_dim = layer.attention.head_dim

    def __call__(self, x: Tensor, bias: Tensor, length: int) -> Tensor:
        """(b * s, width) to the same, s being `length`."""
        projected = self.project(norm(self.norms[0], x)).view(
            len(bias), length, 3, -1, self.head_dim
        )
        keys, values = _by_head(projected[:, :, 1:], bias.shape[-1])
        mixed, _ = _attend(projected[:, :, 0], keys, values, bias)
        x = self.output(mixed, x)
        return self.outer(self.inner(norm(self.norms[1], x)), x)


class DecoderStep:
    """Products of a decoder layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        own, cross, block = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.norms = layer.self_norm, layer.cross_norm, layer.feed_forward_norm
        self.project, self.output = _inputs(own), product_of(own.output)
        self.query, self.memory = _query_and_memory(cross)
        self.mix = product_of(cross.output)
        self.inner, self.outer = product_of(block.inner, relu=True), product_of(block.outer)
        self.head_dim = own.head_dim
        self.scratch: Tensor | None = None

    def start(self, memory: Tensor, bias: Tensor, length: int, room: int) -> LayerCache:
        """Keys and values of memory (b * s, width), s being `length`, and room for n of those to come."""
        projected = self.memory(memory).view(len(bias), length, 2, -1, self.head_dim)
        source = _by_head(projected, bias.shape[-1])
        return LayerCache(self._room(len(source[0]), room, source[0]), source)

    def _room(self, rows: int, columns: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, columns, d) for keys and for values: the batch before's where it suffices, as fresh memory is slow.

        What is in it is finite and masked.
        """
        count = rows * columns * self.head_dim
        if (
            self.scratch is None
            or self.scratch.shape[1] < count
            or self.scratch.dtype != like.dtype
        ):
            self.scratch = like.new_zeros(2, count)
        keys, values = self.scratch[:, :count].view(2, rows, columns, self.head_dim).unbind()
        return keys, values

    def step(
        self, x: Tensor, state: DecoderState, cache: LayerCache, tree: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """One position x (b * k, width) of each hypothesis, and attention to the source, as `_attend` has it."""
        b, k, begin, d = tree.shape[0], state.beams, state.position * state.beams, self.head_dim
        projected = self.project(norm(self.norms[0], x)).view(b, k, 3, -1, d)
        query, *new = projected.unbind(2)
        for past, one in zip(cache.past, new, strict=True):
            past.narrow(1, begin, k).view(b, -1, k, d).copy_(one.transpose(1, 2))
        keys, values = (past.narrow(1, 0, tree.shape[3]) for past in cache.past)
        mixed, _ = _attend(query, keys, values, tree)
        x = self.output(mixed, x)
        query = self.query(norm(self.norms[1], x)).view(b, k, -1, d)
        mixed, weights = _attend(query, *cache.source, state.bias)
        x = self.mix(mixed, x)
        return self.outer(self.inner(norm(self.norms[2], x)), x), weights


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Mixed values (b * k, h * d) and weights (b * h, k, n) of scaled queries (b, k, h, d) over keys (b * h, n, d).

    The bias broadcasts to (b, h, k, n). There are no weights for a single query, for which torch's own is faster.
    """
    b, k, h, d = query.shape
    if k == 1:
        keys, values = (torch.unflatten(part, 0, (b, h)) for part in (keys, values))
        found = functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, bias, scale=1.0
        )
        return found.reshape(b, h * d), None
    with default_products(query.device, k * keys.shape[1]):
        scores = torch.bmm(query.transpose(1, 2).reshape(b * h, k, d), keys.transpose(1, 2))
        scores.view(b, h, k, -1).add_(bias)
        weights = scores.softmax(-1)
        mixed = torch.bmm(weights.to(values.dtype), values)
    return mixed.view(b, h, k, d).transpose(1, 2).reshape(b * k, h * d), weights


def _by_head(projected: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Keys and values (b * h, room, d) of (b, n, 2, h, d), zeros behind."""
    b, n, _, h, d = projected.shape
    found = projected.new_zeros(2, b, h, room, d)
    found[:, :, :, :n] = projected.permute(2, 0, 3, 1, 4)
    return found[0].view(b * h, room, d), found[1].view(b * h, room, d)


def norm(one: nn.LayerNorm, x: Tensor) -> Tensor:
    """What the module computes, without the cost of calling it."""
    return torch.layer_norm(x, one.normalized_shape, one.weight, one.bias, one.eps)


def _inputs(attention: Attention) -> Product:
    """Scaled queries, keys and values in one product."""
    if not _plain(attention):
        return _scaled(product_of(attention.query_key_value), attention)
    return product(*_scaled_weights(attention))


def _query_and_memory(attention: Attention) -> tuple[Product, Product]:
    """Products of scaled queries, and of keys and values, for attention to another sequence."""
    if not _plain(attention):
        return _scaled(product_of(attention.query), attention), product_of(attention.key_value)
    weight, bias = _scaled_weights(attention)
    rows = attention.output.in_features
    return product(weight[:rows], bias[:rows]), product(weight[rows:], bias[rows:])


def _plain(attention: nn.Module) -> bool:
    """Whether it is not quantised."""
    return isinstance(attention.get_submodule("output"), nn.Linear)


def _scaled_weights(attention: Attention) -> tuple[Tensor, Tensor]:
    """`Attention.packed` with the scores' scale in the queries' rows."""
    weight, bias = (part.detach().clone() for part in attention.packed())
    rows = attention.output.in_features
    for part in (weight, bias):
        part[:rows] *= 1 / math.sqrt(attention.head_dim)
    return weight, bias


def _scaled(multiply: Product, attention: Attention) -> Product:
    """The same for a quantised module, whose first columns are the queries."""
    scale, rows = 1 / math.sqrt(attention.head_dim), attention.output.in_features

    def scaled(x: Tensor) -> Tensor:
        y = multiply(x)
        y[:, :rows].mul_(scale)
        return y

    return then_added(scaled)
