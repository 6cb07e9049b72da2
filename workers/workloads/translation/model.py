"""A pre-norm Transformer encoder-decoder with one embedding for both languages and, where tied, the output.

Shapes: b sentences, s source positions, t target positions, v entries of the vocabulary. Ids of 0 are padding, which
only follows a sentence; it changes nothing at any other position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import layouts
from .attention import Attention
from .dropout import Dropout
from .loss import linear_cross_entropy

PAD = 0


@dataclass(frozen=True)
class Architecture:
    """What a model is built from.

    Args:
        width: of the hidden states; num_heads divides it.
        encoder_layers, decoder_layers: how many.
        feed_forward: hidden units of the feed-forward blocks.
        layout, inference_layout, kernel: of attention, see `attention`.
        positions: "sinusoidal", or "learned" up to `max_length`.
        tied: whether the output projection is the embedding matrix.
    """

    vocabulary_size: int
    width: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    feed_forward: int
    dropout: float
    layout: str = "interleaved"
    inference_layout: str | None = None
    kernel: str = "auto"
    positions: str = "sinusoidal"
    tied: bool = True
    max_length: int = 256

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.num_heads


class Embedding(nn.Module):
    """Vectors of tokens plus vectors of positions; the former also score the output."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.tokens = nn.Embedding(a.vocabulary_size, a.width)
        self.positions = nn.Embedding(a.max_length, a.width) if a.positions == "learned" else None
        self.dropout = Dropout(a.dropout)

    def forward(self, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Vectors (b, t, width) of ids (b, t), under dropout; places (t, width) are those of the first t positions."""
        if places is None:
            places = self.places(ids.shape[1], ids.device)
        x: Tensor = self.dropout(torch.add(places, self.tokens(ids), alpha=math.sqrt(self.tokens.embedding_dim)))
        return x

    def places(self, length: int, device: torch.device) -> Tensor:
        """Vectors (length, width) of the first positions."""
        if self.positions is None:
            return sinusoids(0, length, self.tokens.embedding_dim, device)
        vectors: Tensor = self.positions(torch.arange(length, device=device))
        return vectors

    def score(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden states (..., width)."""
        return functional.linear(hidden, self.tokens.weight)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., width)."""
        y: Tensor = self.outer(functional.relu(self.inner(x)))
        return y


class EncoderLayer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(a.width), _attention(a)
        self.feed_forward_norm, self.feed_forward = nn.LayerNorm(a.width), FeedForward(a.width, a.feed_forward)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (b, s, width) under mask (b, 1, 1, s)."""
        x = self.dropout.add(x, self.attention(self.attention_norm(x), mask=mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))


@dataclass
class LayerCache:
    """What a decoder layer remembers: keys and values (b * beams, h, room, d) so far, and the source's (b, h, s, d)."""

    keys: Tensor
    values: Tensor
    source_keys: Tensor
    source_values: Tensor


@dataclass
class State:
    """What decoding remembers of hypotheses.

    `bias` (b, 1, 1, s) is added to scores of source positions: 0, or -inf for padding; `places` (room, width) are the
    vectors of target positions.
    """

    caches: list[LayerCache]
    bias: Tensor
    places: Tensor

    def select(self, rows: Tensor, sentences: Tensor, length: int) -> State:
        """The state of some hypotheses (rows) and sentences, of which `length` positions are filled."""
        caches = [_select(cache, rows, sentences, length) for cache in self.caches]
        bias = self.bias if len(sentences) == len(self.bias) else self.bias[sentences]
        return State(caches, bias, self.places)


def _select(cache: LayerCache, rows: Tensor, sentences: Tensor, length: int) -> LayerCache:
    shape = (len(rows), *cache.keys.shape[1:])
    keys, values = cache.keys.new_empty(shape), cache.values.new_empty(shape)
    keys[:, :, :length] = cache.keys[:, :, :length].index_select(0, rows)
    values[:, :, :length] = cache.values[:, :, :length].index_select(0, rows)
    if len(sentences) == len(cache.source_keys):
        return LayerCache(keys, values, cache.source_keys, cache.source_values)
    return LayerCache(keys, values, cache.source_keys[sentences], cache.source_values[sentences])


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, feed-forward, each residual after its norm."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.self_norm, self.self_attention = nn.LayerNorm(a.width), _attention(a)
        self.cross_norm, self.cross_attention = nn.LayerNorm(a.width), _attention(a, cross=True)
        self.feed_forward_norm, self.feed_forward = nn.LayerNorm(a.width), FeedForward(a.width, a.feed_forward)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (b, t, width) attends to memory (b, s, width) under mask (b, 1, 1, s)."""
        x = self.dropout.add(x, self.self_attention(self.self_norm(x)))
        x = self.dropout.add(x, self.cross_attention(self.cross_norm(x), memory, mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))

    def step(self, x: Tensor, position: int, cache: LayerCache, bias: Tensor) -> Tensor:
        """One position x (b * beams, 1, width) of each hypothesis; the cache gains its key and value."""
        query, key, value = self.self_attention.project(self.self_norm(x))
        cache.keys[:, :, position], cache.values[:, :, position] = key[:, :, 0], value[:, :, 0]
        past = slice(0, position + 1)
        x = x + self.self_attention.attend(query, cache.keys[:, :, past], cache.values[:, :, past])
        beams = self.cross_norm(x).view(len(cache.source_keys), -1, x.shape[-1])  # beams of a sentence as its queries
        query = self.cross_attention.project_query(beams)
        x = x + self.cross_attention.attend(query, cache.source_keys, cache.source_values, bias).view_as(x)
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class Encoder(nn.Module):
    """Layers and a last norm."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(a) for _ in range(a.encoder_layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(b, s, width) to (b, s, width)."""
        for layer in self.layers:
            x = layer(x, mask)
        y: Tensor = self.norm(x)
        return y


class Decoder(nn.Module):
    """Layers and a last norm."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(a) for _ in range(a.decoder_layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """(b, t, width) to (b, t, width)."""
        for layer in self.layers:
            x = layer(x, memory, mask)
        y: Tensor = self.norm(x)
        return y


class Transformer(nn.Module):
    """Scores of the next target token.

    Args:
        seed: the weights are a function of it and of the architecture, whatever the layout of attention.
    """

    def __init__(self, architecture: Architecture, seed: int = 0) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.embedding = Embedding(a)
        self.encoder, self.decoder = Encoder(a), Decoder(a)
        self.projection = None if a.tied else nn.Linear(a.width, a.vocabulary_size, bias=False)
        if not self.embedding.tokens.weight.is_meta:
            initialise(self, seed)

    def forward(self, source: Tensor, shifted: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """Logits (n, v) of the n positions of `shifted` that are no padding, row by row; with labels, their loss.

        Args:
            source: ids (b, s). shifted: target ids (b, t), shifted right, padded where the labels are.
            labels: ids (b, t); smoothing: see `loss.smoothed_cross_entropy`, whose sum over positions is returned.
        """
        mask = padding_mask(source)
        memory = self.encode(source, mask)
        hidden = self.decoder(self.embedding(shifted), memory, mask)[shifted != PAD]
        if labels is None:
            return self.score(hidden)
        weight = self.embedding.tokens.weight if self.projection is None else self.projection.weight
        return linear_cross_entropy(hidden, weight, labels[labels != PAD], smoothing)

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Memory (b, s, width) of ids (b, s)."""
        memory: Tensor = self.encoder(self.embedding(source), mask)
        return memory

    def score(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden states (..., width)."""
        logits: Tensor = self.embedding.score(hidden) if self.projection is None else self.projection(hidden)
        return logits

    def start(self, memory: Tensor, mask: Tensor, beams: int, room: int) -> State:
        """Nothing decoded yet: room for so many target positions of `beams` hypotheses of each sentence of memory.

        Args:
            memory: (b, s, width). mask: (b, 1, 1, s).
        """
        caches = []
        for layer in self.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            keys, values = (x.contiguous() for x in layer.cross_attention.project_memory(memory))
            shape = (len(memory) * beams, keys.shape[1], room, keys.shape[3])
            caches.append(LayerCache(keys.new_empty(shape), keys.new_empty(shape), keys, values))
        bias = memory.new_zeros(mask.shape).masked_fill(~mask, -math.inf)
        return State(caches, bias, self.embedding.places(room, memory.device))

    def step(self, ids: Tensor, position: int, state: State) -> Tensor:
        """Logits (b * beams, v) after ids (b * beams,), which stand at `position`; the state gains that position."""
        x = self.embedding(ids[:, None], state.places[position])
        for layer, cache in zip(self.decoder.layers, state.caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(x, position, cache, state.bias)
        return self.score(self.decoder.norm(x)[:, 0])


def _attention(a: Architecture, *, cross: bool = False) -> Attention:
    return Attention(a.width, a.num_heads, a.layout, a.kernel, cross=cross, inference=a.inference_layout)


def padding_mask(source: Tensor) -> Tensor:
    """(b, 1, 1, s), True where a position of ids (b, s) may be attended to."""
    return (source != PAD)[:, None, None]


def sinusoids(begin: int, length: int, width: int, device: torch.device) -> Tensor:
    """Sines, then cosines, (length, width) of positions from `begin` on (Vaswani et al. 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
    angles = torch.arange(begin, begin + length, device=device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Xavier-uniform matrices, zero biases, normal embeddings of deviation width^-0.5."""
    generator = torch.Generator().manual_seed(seed)
    width = model.architecture.width
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            module.weight.copy_(torch.empty(module.weight.shape).normal_(std=width**-0.5, generator=generator))
        elif isinstance(module, Attention):
            _initialise_inputs(module, generator)
        elif isinstance(module, nn.Linear):
            if name.rpartition(".")[2] not in ("query", "key_value", "query_key_value"):
                module.weight.copy_(_xavier(module.weight.shape, generator))
            if module.bias is not None:
                module.bias.zero_()


def _initialise_inputs(attention: Attention, generator: torch.Generator) -> None:
    width = attention.output.in_features
    parts = {part: _xavier(torch.Size((width, width)), generator) for part in ("query", "key", "value")}
    fused = "query_key_value" if attention.layout == "packed" else "key_value"
    linear = attention.get_submodule(fused)
    assert isinstance(linear, nn.Linear)
    linear.weight.copy_(layouts.join(parts, fused, attention.layout, attention.head_dim))
    if attention.layout != "packed":
        attention.query.weight.copy_(parts["query"])


def _xavier(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return nn.init.xavier_uniform_(torch.empty(shape), generator=generator)
