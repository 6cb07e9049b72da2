"""Fast inference: the encoder, and the decoder one position at a time with cached keys.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, t target positions so far, v
entries; S and n as in `decoder_state`.
"""

import math

import torch
from torch import Tensor, nn

from .attention import Attention
from .decoder_state import DecoderState, LayerCache, rounded
from .matrix_products import Product, default_products, product, product_of
from .model import DecoderLayer, EncoderLayer, Transformer
from .vocabulary import PAD


class EncoderStep:
    """The matrix products of an encoder layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        self.norms = layer.attention_norm, layer.feed_forward_norm
        self.project = _inputs(layer.attention)
        self.output = product_of(layer.attention.output)
        self.inner = product_of(layer.feed_forward.inner, relu=True)
        self.outer = product_of(layer.feed_forward.outer)
        self.head_dim = layer.attention.head_dim

    def __call__(self, x: Tensor, bias: Tensor, length: int) -> Tensor:
        """Apply the layer to x (b * s, width) with s = `length`; same shape."""
        shape = (len(bias), length, 3, -1, self.head_dim)
        projected = self.project(norm(self.norms[0], x)).view(shape)
        keys, values = _by_head(projected[:, :, 1:], bias.shape[-1])
        x = self.output(_attend(projected[:, :, 0], keys, values, bias), x)
        return self.outer(self.inner(norm(self.norms[1], x)), x)


class DecoderStep:
    """The matrix products of a decoder layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.norms = layer.self_norm, layer.cross_norm, layer.feed_forward_norm
        self.project = _inputs(layer.self_attention)
        self.output = product_of(layer.self_attention.output)
        self.query, self.memory = _query_and_memory(layer.cross_attention)
        self.mix = product_of(layer.cross_attention.output)
        self.inner = product_of(layer.feed_forward.inner, relu=True)
        self.outer = product_of(layer.feed_forward.outer)
        self.head_dim = layer.self_attention.head_dim
        self.scratch: Tensor | None = None

    def start(self, memory: Tensor, bias: Tensor, length: int, room: int) -> LayerCache:
        """A cache: keys and values of memory (b * s, width), s = `length`, and room for n nodes."""
        projected = self.memory(memory).view(len(bias), length, 2, -1, self.head_dim)
        source = _by_head(projected, bias.shape[-1])
        return LayerCache(self._room(len(source[0]), room, source[0]), source)

    def _room(self, rows: int, columns: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (rows, columns, d) with arbitrary, finite content that is masked later.

        The buffer of the last batch is reused if it is large enough, because fresh memory is slow.
        """
        count = rows * columns * self.head_dim
        scratch = self.scratch
        if scratch is None or scratch.shape[1] < count or scratch.dtype != like.dtype:
            scratch = self.scratch = like.new_zeros(2, count)
        keys, values = scratch[:, :count].view(2, rows, columns, self.head_dim).unbind()
        return keys, values

    def step(self, x: Tensor, state: DecoderState, cache: LayerCache, tree: Tensor) -> Tensor:
        """Process one position x (b * k, width) of each hypothesis; same shape."""
        b = tree.shape[0]
        k = state.beams
        d = self.head_dim
        query, *new = self.project(norm(self.norms[0], x)).view(b, k, 3, -1, d).unbind(2)
        for past, one in zip(cache.past, new, strict=True):
            past.narrow(1, state.position * k, k).view(b, -1, k, d).copy_(one.transpose(1, 2))
        keys, values = (past.narrow(1, 0, tree.shape[3]) for past in cache.past)
        x = self.output(_attend(query, keys, values, tree), x)
        query = self.query(norm(self.norms[1], x)).view(b, k, -1, d)
        x = self.mix(_attend(query, *cache.source, state.bias), x)
        return self.outer(self.inner(norm(self.norms[2], x)), x)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Attention of scaled queries (b, k, h, d) over keys and values (b * h, n, d).

    Args:
        bias: broadcasts to (b, h, k, n).

    Returns:
        Output (b * k, h * d). If k = 1, torch's own attention is faster.
    """
    b, k, h, d = query.shape
    if k == 1:
        keys, values = (torch.unflatten(part, 0, (b, h)) for part in (keys, values))
        found = nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, bias, scale=1.0
        )
        return found.reshape(b, h * d)
    with default_products(query.device, k * keys.shape[1]):
        scores = torch.bmm(query.transpose(1, 2).reshape(b * h, k, d), keys.transpose(1, 2))
        scores.view(b, h, k, -1).add_(bias)
        weights = scores.softmax(-1)
        mixed = torch.bmm(weights.to(values.dtype), values)
    return mixed.view(b, h, k, d).transpose(1, 2).reshape(b * k, h * d)


def _by_head(projected: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Split (b, n, 2, h, d) into keys and values (b * h, room, d), padded with zeros."""
    b, n, _, h, d = projected.shape
    found = projected.new_zeros(2, b, h, room, d)
    found[:, :, :, :n] = projected.permute(2, 0, 3, 1, 4)
    return found[0].view(b * h, room, d), found[1].view(b * h, room, d)


def norm(one: nn.LayerNorm, x: Tensor) -> Tensor:
    """The same as the module, without the overhead of a module call."""
    return torch.layer_norm(x, one.normalized_shape, one.weight, one.bias, one.eps)


def _inputs(attention: Attention) -> Product:
    """Scaled queries, keys and values in one product."""
    return product(*_scaled_weights(attention))


def _query_and_memory(attention: Attention) -> tuple[Product, Product]:
    """For cross-attention: products for scaled queries, and for keys and values."""
    weight, bias = _scaled_weights(attention)
    rows = attention.output.in_features
    return product(weight[:rows], bias[:rows]), product(weight[rows:], bias[rows:])


def _scaled_weights(attention: Attention) -> tuple[Tensor, Tensor]:
    """`Attention.packed` with the scale of the scores multiplied into the query rows."""
    weight, bias = (part.detach().clone() for part in attention.packed())
    rows = attention.output.in_features
    for part in (weight, bias):
        part[:rows] *= 1 / math.sqrt(attention.head_dim)
    return weight, bias


class Stepper:
    """Encoder and decoder of a model in eval mode, for any attention layout.

    Weights are copied to a fast layout; later changes of the model have no effect.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.score = product(model.output_weight, None)  # hidden states (m, width) to logits (m, v)
        self.encoder = [
            EncoderStep(layer) for layer in model.encoder.layers if isinstance(layer, EncoderLayer)
        ]
        self.decoder = [
            DecoderStep(layer) for layer in model.decoder.layers if isinstance(layer, DecoderLayer)
        ]

    def start(self, source: Tensor, beams: int, room: int) -> DecoderState:
        """Encode sources (b, s) and allocate `room` target positions of `beams` hypotheses each."""
        b, s = source.shape
        mask = nn.functional.pad(source != PAD, (0, rounded(s) - s))[:, None, None]
        bias = torch.zeros(mask.shape, device=source.device).masked_fill_(~mask, -math.inf)
        x = (self.model.source_embedding or self.model.embedding)(source).flatten(0, 1)
        for layer in self.encoder:
            x = layer(x, bias, s)
        memory = norm(self.model.encoder.norm, x)
        caches = [layer.start(memory, bias, s, rounded(room * beams)) for layer in self.decoder]
        itself = bias.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        ancestors = bias.new_full((b, beams, rounded(room * beams)), -math.inf)
        places = list(self.model.embedding.places(room, source.device).unbind())
        return DecoderState(caches, bias, ancestors, itself, places)

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Decode ids (b * k,) at the next position.

        Returns:
            Hidden states (b * k, width), ready for `score`.
        """
        x = self.model.embedding(ids, state.places[state.position])
        tree = state.grow()
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x = layer.step(x, state, cache, tree)
        state.position += 1
        return norm(self.model.decoder.norm, x)


_BLOCK = 64  # columns per block of `best_tokens`


def best_tokens(logs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (n, v) and their columns, (n, count) each.

    They lie in the blocks with the largest maxima, so only those blocks are sorted.
    """
    width = logs.shape[1]
    count = min(count, width)
    blocks = width // _BLOCK
    if blocks <= count:
        return logs.topk(count)
    maxima = torch.unflatten(logs[:, : _BLOCK * blocks], 1, (blocks, _BLOCK)).amax(2)
    chosen = maxima.topk(count).indices
    index = (_BLOCK * chosen[..., None] + torch.arange(_BLOCK, device=logs.device)).flatten(1)
    if width % _BLOCK:
        rest = torch.arange(_BLOCK * blocks, width, device=logs.device).expand(len(logs), -1)
        index = torch.cat([index, rest], 1)
    values, places = logs.gather(1, index).topk(count)
    return values, index.gather(1, places)
