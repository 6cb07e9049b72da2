"""A pre-norm Transformer encoder-decoder; source, target and output share an embedding matrix where they are tied.

Shapes: b sentences, s source positions, t target positions, v entries of the vocabulary. Ids of 0 are padding, which
only follows a sentence; it changes nothing at any other position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import attention_layouts
from .attention import Attention
from .dropout import Dropout
from .loss import linear_cross_entropy

PAD = 0
TYING = ("all", "source_target", "target_output", "none")


@dataclass(frozen=True)
class Architecture:
    """What a model is built from.

    Args:
        width: of the hidden states; num_heads divides it.
        encoder_layers, decoder_layers: how many.
        feed_forward: hidden units of the feed-forward blocks.
        layout, inference_layout, kernel: of attention, see `attention`.
        positions: "sinusoidal", or "learned" up to `max_length`.
        tied: which of the source's embedding, the target's and the output projection are one matrix (Press and Wolf
            2017, https://arxiv.org/abs/1608.05859): one of `TYING`; True is "all", False "source_target".
        cutoffs: ascending ids; where there are any, the output is an adaptive softmax (Grave et al. 2017,
            https://arxiv.org/abs/1609.04309): entries from each on have vectors a quarter as wide as those before.
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
    tied: str | bool = "all"
    max_length: int = 256
    cutoffs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.tied, bool):  # as it was written once
            object.__setattr__(self, "tied", "all" if self.tied else "source_target")
        object.__setattr__(
            self, "cutoffs", tuple(self.cutoffs)
        )  # a list where it was read from a file

    @property
    def ties_output(self) -> bool:
        """Whether the output projection is the target's embedding matrix."""
        return self.tied in ("all", "target_output")

    @property
    def ties_source(self) -> bool:
        """Whether source and target have one embedding."""
        return self.tied in ("all", "source_target")

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
        x: Tensor = self.dropout(
            torch.add(places, self.tokens(ids), alpha=math.sqrt(self.tokens.embedding_dim))
        )
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
        self.feed_forward_norm, self.feed_forward = (
            nn.LayerNorm(a.width),
            FeedForward(a.width, a.feed_forward),
        )
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (b, s, width) under mask (b, 1, 1, s)."""
        x = self.dropout.add(x, self.attention(self.attention_norm(x), mask=mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, feed-forward, each residual after its norm."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.self_norm, self.self_attention = nn.LayerNorm(a.width), _attention(a)
        self.cross_norm, self.cross_attention = nn.LayerNorm(a.width), _attention(a, cross=True)
        self.feed_forward_norm, self.feed_forward = (
            nn.LayerNorm(a.width),
            FeedForward(a.width, a.feed_forward),
        )
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (b, t, width) attends to memory (b, s, width) under mask (b, 1, 1, s)."""
        x = self.dropout.add(x, self.self_attention(self.self_norm(x)))
        x = self.dropout.add(x, self.cross_attention(self.cross_norm(x), memory, mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))


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
        plain = not (a.ties_output or a.cutoffs)
        self.projection = nn.Linear(a.width, a.vocabulary_size, bias=False) if plain else None
        self.source_embedding = None if a.ties_source else Embedding(a)
        self.adaptive = (
            nn.AdaptiveLogSoftmaxWithLoss(a.width, a.vocabulary_size, list(a.cutoffs))
            if a.cutoffs
            else None
        )
        if not self.embedding.tokens.weight.is_meta:
            initialise(self, seed)

    def forward(
        self, source: Tensor, shifted: Tensor, labels: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
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
        if self.adaptive is not None:
            real = labels[labels != PAD]
            loss: Tensor = self.adaptive(hidden, real).loss
            return loss * len(real)
        return linear_cross_entropy(hidden, self.output_weight, labels[labels != PAD], smoothing)

    @property
    def output_weight(self) -> Tensor:
        """By which hidden states are scored, (v, width)."""
        return self.embedding.tokens.weight if self.projection is None else self.projection.weight

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Memory (b, s, width) of ids (b, s)."""
        memory: Tensor = self.encoder((self.source_embedding or self.embedding)(source), mask)
        return memory

    def score(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden states (..., width); log-probabilities where the softmax is adaptive."""
        if self.adaptive is not None:
            flat: Tensor = self.adaptive.log_prob(hidden.flatten(0, -2))
            return flat.view(*hidden.shape[:-1], -1)
        logits: Tensor = (
            self.embedding.score(hidden) if self.projection is None else self.projection(hidden)
        )
        return logits


def _attention(a: Architecture, *, cross: bool = False) -> Attention:
    return Attention(
        a.width, a.num_heads, a.layout, a.kernel, cross=cross, inference=a.inference_layout
    )


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
            module.weight.copy_(
                torch.empty(module.weight.shape).normal_(std=width**-0.5, generator=generator)
            )
        elif isinstance(module, Attention):
            _initialise_inputs(module, generator)
        elif isinstance(module, nn.Linear):
            if name.rpartition(".")[2] not in ("query", "key_value", "query_key_value"):
                module.weight.copy_(_xavier(module.weight.shape, generator))
            if module.bias is not None:
                module.bias.zero_()


def _initialise_inputs(attention: Attention, generator: torch.Generator) -> None:
    width = attention.output.in_features
    parts = {
        part: _xavier(torch.Size((width, width)), generator) for part in ("query", "key", "value")
    }
    fused = "query_key_value" if attention.layout == "packed" else "key_value"
    linear = attention.get_submodule(fused)
    assert isinstance(linear, nn.Linear)
    linear.weight.copy_(attention_layouts.join(parts, fused, attention.layout, attention.head_dim))
    if attention.layout != "packed":
        attention.query.weight.copy_(parts["query"])


def _xavier(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return nn.init.xavier_uniform_(torch.empty(shape), generator=generator)
