"""The decoder one position at a time: weights laid out for it once, keys and values that never move.

Beams of a sentence share their keys and values as the nodes of a tree: each node is a column, and a mask says which
are a hypothesis's ancestors. When hypotheses change places, only the mask is reordered, and all beams of a sentence
attend in one product, which suits the beams of 2 to 20 that people use.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, t target positions so far, v entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import Attention
from .model import DecoderLayer, Transformer, padding_mask

Product = Callable[[Tensor], Tensor]
_EXACT = 1e-5


@dataclass
class Cache:
    """Of a layer: keys and values of the tree (2, b, h, room * k, d); of the source (b, h, d, s) and (b, h, s, d)."""

    past: Tensor
    source_keys: Tensor
    source_values: Tensor


@dataclass
class State:
    """What decoding remembers.

    `bias` (b, 1, 1, s) is added to scores of source positions, `ancestors` (b, k, t * k) to those of the tree's nodes:
    0, or -inf for padding and nodes of other hypotheses; None where each is an ancestor; `itself` (k, k) is that of new
    nodes. `places` (room, width) are the
    vectors of target positions; `attention` (b, k, s) is the last layer's to the source, where it is wanted.
    """

    caches: list[Cache]
    bias: Tensor | None
    ancestors: Tensor | None
    itself: Tensor
    places: Tensor
    beams: int
    position: int = 0
    attention: Tensor | None = None

    def follow(self, parents: Tensor) -> None:
        """Let hypotheses (b, k) go on from the hypotheses `parents`, 0 to k - 1."""
        if self.ancestors is not None:
            index = parents[..., None].expand(-1, -1, self.ancestors.shape[2])
            self.ancestors = self.ancestors.gather(1, index)

    def grow(self) -> Tensor | None:
        """The ancestors of hypotheses that each gain a node."""
        if self.ancestors is not None:
            own = self.itself.expand(len(self.ancestors), -1, -1)
            self.ancestors = torch.cat([self.ancestors, own], 2)
        return self.ancestors

    def keep(self, sentences: Tensor) -> None:
        """Forget all sentences but those."""
        self.caches = [_select(cache, sentences, self.position * self.beams) for cache in self.caches]
        self.bias = None if self.bias is None else self.bias[sentences]
        self.ancestors = None if self.ancestors is None else self.ancestors[sentences]


def _select(cache: Cache, sentences: Tensor, filled: int) -> Cache:
    past = cache.past.new_empty((2, len(sentences), *cache.past.shape[2:]))
    past[:, :, :, :filled] = cache.past[:, :, :, :filled].index_select(1, sentences)
    return Cache(past, cache.source_keys[sentences], cache.source_values[sentences])


class Stepper:
    """The decoder of a model in eval mode, whatever its attention layout; weights that change later are not seen.

    Args:
        wants_attention: whether `State.attention` is kept.
    """

    def __init__(self, model: Transformer, *, wants_attention: bool = False) -> None:
        self.model, self.wants_attention = model, wants_attention
        layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        self.layers = [_Layer(layer) for layer in layers]
        self.score: Product = model.score
        if model.adaptive is None:
            projection = model.projection
            self.score = _plain(model.output_weight, None) if projection is None else _product(projection)

    def rows(self, ids: Tensor, unused: int = 0) -> Product:
        """As `score`, of some entries (n,) alone, of which the last `unused` get -inf."""
        if self.model.adaptive is not None:
            used = len(ids) - unused
            return lambda x: functional.pad(self.score(x)[:, ids[:used]], (0, unused), value=-math.inf)
        bias = torch.zeros(len(ids), device=ids.device)
        bias[len(ids) - unused :] = -math.inf
        projection: Any = self.model.projection
        if projection is None or isinstance(projection, nn.Linear):
            return _plain(self.model.output_weight[ids], bias)
        packed = torch.ops.quantized.linear_prepack(self._quantised[ids], bias)
        return lambda x: torch.ops.quantized.linear_dynamic(x, packed, False)

    @cached_property
    def _quantised(self) -> Tensor:
        """The output's 8-bit matrix (v, width), which its module keeps in another order."""
        projection: Any = self.model.projection
        weight: Tensor = projection.weight()
        return weight

    def start(self, source: Tensor, beams: int, room: int) -> State:
        """Nothing decoded yet: room for so many target positions of `beams` hypotheses of each source (b, s)."""
        mask = padding_mask(source)
        memory = self.model.encode(source, mask)
        caches = [layer.start(memory, beams, room) for layer in self.layers]
        b = len(source)
        floats = caches[0].source_keys.new_zeros(())
        bias = None if bool(mask.all()) else torch.where(mask, floats, -math.inf)
        itself = floats.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        ancestors = None if beams == 1 else floats.new_empty(b, beams, 0)
        return State(caches, bias, ancestors, itself, self.model.embedding.places(room, source.device), beams)

    def step(self, ids: Tensor, state: State) -> Tensor:
        """Hidden states (b * k, width), ready for scoring, after ids (b * k,), which take the next position."""
        x = self.model.embedding(ids[:, None], state.places[state.position])[:, 0]
        tree, h = state.grow(), state.caches[0].past.shape[2]
        weights = None
        for layer, cache in zip(self.layers, state.caches, strict=True):
            x, weights = layer.step(x, state, cache, tree)
        if self.wants_attention and weights is not None:
            state.attention = weights.view(-1, h, *weights.shape[1:]).float().mean(1)
        state.position += 1
        return _norm(self.model.decoder.norm, x)


class _Layer:
    """Products of a decoder layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        own, cross, block = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.norms = layer.self_norm, layer.cross_norm, layer.feed_forward_norm
        self.project, self.output = _packed(own), _product(own.output)
        self.query, self.mix = _product(cross.query), _product(cross.output)
        self.inner, self.outer = _product(block.inner), _product(block.outer)
        self.cross, self.head_dim = cross, own.head_dim
        self.scale = 1 / math.sqrt(own.head_dim)

    def start(self, memory: Tensor, beams: int, room: int) -> Cache:
        """Keys and values of memory (b, s, width), and room for those to come."""
        keys, values = self.cross.project_memory(memory)
        b, h, _, d = keys.shape
        past = keys.new_empty((2, b, h, room * beams, d))
        return Cache(past, keys.transpose(2, 3).contiguous(), values.contiguous())

    def step(self, x: Tensor, state: State, cache: Cache, tree: Tensor | None) -> tuple[Tensor, Tensor]:
        """One position x (b * k, width) of each hypothesis, and attention to the source (b * h, k, s)."""
        k, d, t = state.beams, self.head_dim, state.position
        projected = self.project(_norm(self.norms[0], x)).view(-1, k, 3, cache.past.shape[2], d)
        cache.past[:, :, :, t * k : (t + 1) * k] = projected[:, :, 1:].permute(2, 0, 3, 1, 4)
        keys, values = cache.past[:, :, :, : (t + 1) * k].flatten(1, 2).unbind(0)
        query = projected[:, :, 0].transpose(1, 2)
        mixed, _ = self._attend(query, keys.transpose(1, 2), values, None if tree is None else tree[:, None])
        x = x + self.output(mixed)
        query = self.query(_norm(self.norms[1], x)).view(len(query), k, -1, d).transpose(1, 2)
        keys, values = cache.source_keys.flatten(0, 1), cache.source_values.flatten(0, 1)
        mixed, weights = self._attend(query, keys, values, state.bias)
        x = x + self.mix(mixed)
        return x + self.outer(functional.relu(self.inner(_norm(self.norms[2], x)))), weights

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mixed values (b * k, h * d) and weights (b * h, k, n) of queries (b, h, k, d) over n keys (b * h, d, n).

        The bias broadcasts to (b, h, k, n).
        """
        b, h, k, d = query.shape
        flat = query.reshape(b * h, k, d).mul(self.scale)
        with _small_products(flat.device):
            scores = torch.bmm(flat, keys)
            if bias is not None:
                scores.view(b, h, k, -1).add_(bias)
            weights = scores.softmax(-1)
            mixed = torch.bmm(weights.to(values.dtype), values)
        return mixed.view(b, h, k, d).transpose(1, 2).reshape(b * k, h * d), weights


def _norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _packed(attention: Attention) -> Product:
    """Queries, keys and values in one product."""
    if attention.layout == "packed":
        return _product(attention.query_key_value)
    return _plain(*attention.packed())


def _product(linear: nn.Module) -> Product:
    """A linear map; one that is no `nn.Linear` (a quantised one) by itself."""
    return _plain(linear.weight, linear.bias) if isinstance(linear, nn.Linear) else linear


def _plain(weight: Tensor, bias: Tensor | None) -> Product:
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # else each step would convert them anew
        weight = weight.to(torch.get_autocast_dtype(device))
    columns = weight.t().contiguous() if device == "cpu" else weight.t()
    if bias is None:
        return lambda x: torch.mm(x, columns)
    return lambda x: torch.addmm(bias, x, columns)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Compute fp32 products by oneDNN on CPUs, some twice as fast as torch's default, where it is as exact."""
    before = torch.get_float32_matmul_precision()
    if device.type != "cpu" or before == "medium" or not _exact():
        yield
        return
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _small_products(device: torch.device) -> Iterator[None]:
    """Undo `fast_products`: batched products as small as attention's are faster by torch's default."""
    before = torch.get_float32_matmul_precision()
    if device.type != "cpu" or before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@lru_cache(maxsize=1)
def _exact() -> bool:
    """Whether "medium" is more than a rounding to bf16 on this machine."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 256, generator=generator) for _ in range(2))
    expected = a.double() @ b.double().t()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        return bool((a @ b.t() - expected).abs().max() < _EXACT * expected.abs().max())
    finally:
        torch.set_float32_matmul_precision(before)
