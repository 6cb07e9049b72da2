"""A pre-norm Transformer encoder-decoder.

Shapes: b sentences, s source positions, t target positions, v entries of the vocabulary. Id 0 is
padding; it comes only after a sentence, and does not affect other positions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from workers.device.precision import device_type

from . import attention_layouts
from .attention import Attention
from .loss import PAD, linear_cross_entropy


class Dropout(nn.Module):
    """Zero each element with probability p and scale the rest (Srivastava et al. 2014).

    On CPUs one random byte decides per element: p is rounded to a multiple of 1/256, and the scale
    fits the rounded value.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to a tensor of any shape."""
        mask = self._mask(x)
        return nn.functional.dropout(x, self.p, self.training) if mask is None else x * mask

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus x under dropout; both have the same shape."""
        mask = self._mask(x)
        if mask is None:
            return residual + nn.functional.dropout(x, self.p, self.training)
        return torch.addcmul(residual, x, mask)

    def _mask(self, x: Tensor) -> Tensor | None:
        """Factors of the elements; None if torch's own dropout, or none, is better."""
        if not self.training or device_type(x) != "cpu" or torch.compiler.is_compiling():
            return None
        dropped = round(self.p * 256)
        return random_mask(x, dropped) if 0 < dropped < 256 else None


@torch.no_grad()
def random_mask(x: Tensor, dropped: int) -> Tensor:
    """A mask like x: 0 with probability `dropped` / 256, else 256 / (256 - dropped)."""
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    bytes_ = words.view(torch.int8)[: x.numel()].view(x.shape)
    kept = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(bytes_, dropped - 128, out=kept)
    return kept.mul_(256 / (256 - dropped))


@dataclass(frozen=True)
class Architecture:
    """The hyperparameters that determine the model.

    Args:
        width: of the hidden states; a multiple of num_heads.
        encoder_layers, decoder_layers: numbers of layers.
        feed_forward: hidden units of the feed-forward blocks.
        layout, kernel: of attention, see `attention`.
        tied: whether the output projection is the embedding of source and target (Press and Wolf
            2017, https://arxiv.org/abs/1608.05859), or a matrix of its own.
    """

    vocabulary_size: int
    width: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    feed_forward: int
    dropout: float
    layout: str = "interleaved"
    kernel: str = "auto"
    tied: bool = True
    max_length: int = 256

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.num_heads


class Embedding(nn.Module):
    """Token embeddings plus position embeddings; the token embeddings can also score the output."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.tokens = nn.Embedding(a.vocabulary_size, a.width)
        self.dropout = Dropout(a.dropout)

    def forward(self, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Vectors (b, t, width) of ids (b, t), after dropout.

        Args:
            places: position embeddings (t, width); by default those of the first t positions.
        """
        if places is None:
            places = self.places(ids.shape[1], ids.device)
        scale = math.sqrt(self.tokens.embedding_dim)
        return cast(Tensor, self.dropout(torch.add(places, self.tokens(ids), alpha=scale)))

    def places(self, length: int, device: torch.device) -> Tensor:
        """Embeddings (length, width) of the first positions."""
        return sinusoids(length, self.tokens.embedding_dim, device)

    def score(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden states (..., width)."""
        return nn.functional.linear(hidden, self.tokens.weight)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., width)."""
        return cast(Tensor, self.outer(nn.functional.relu(self.inner(x))))


class EncoderLayer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(a.width)
        self.attention = _attention(a)
        self.feed_forward_norm = nn.LayerNorm(a.width)
        self.feed_forward = FeedForward(a.width, a.feed_forward)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (b, s, width) under mask (b, 1, 1, s); same shape as x."""
        x = self.dropout.add(x, self.attention(self.attention_norm(x), mask=mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each as x + block(norm(x))."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.self_norm = nn.LayerNorm(a.width)
        self.self_attention = _attention(a)
        self.cross_norm = nn.LayerNorm(a.width)
        self.cross_attention = _attention(a, cross=True)
        self.feed_forward_norm = nn.LayerNorm(a.width)
        self.feed_forward = FeedForward(a.width, a.feed_forward)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (b, t, width) attends to memory (b, s, width) under mask (b, 1, 1, s)."""
        x = self.dropout.add(x, self.self_attention(self.self_norm(x)))
        x = self.dropout.add(x, self.cross_attention(self.cross_norm(x), memory, mask))
        return self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))


class LayerStack(nn.Module):
    """The layers of the encoder or the decoder, and a final norm."""

    def __init__(self, layers: Iterable[nn.Module], width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        """x (b, n, width) to the same shape.

        Args:
            context: the further inputs of every layer: mask, or memory and mask.
        """
        for layer in self.layers:
            x = layer(x, *context)
        return cast(Tensor, self.norm(x))


class Transformer(nn.Module):
    """Scores of the next target token.

    Args:
        seed: the initial weights depend on it and the architecture, not on the attention layout.
    """

    def __init__(self, architecture: Architecture, seed: int = 0) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.embedding = Embedding(a)
        self.encoder = LayerStack((EncoderLayer(a) for _ in range(a.encoder_layers)), a.width)
        self.decoder = LayerStack((DecoderLayer(a) for _ in range(a.decoder_layers)), a.width)
        self.projection = None if a.tied else nn.Linear(a.width, a.vocabulary_size, bias=False)
        if not self.embedding.tokens.weight.is_meta:
            initialise(self, seed)

    def forward(
        self,
        source: Tensor,
        shifted: Tensor,
        labels: Tensor | None = None,
        smoothing: float = 0.0,
        real: Tensor | None = None,
    ) -> Tensor:
        """Logits (n, v) of the n unpadded positions of `shifted`; with labels, the summed loss.

        Compiled for training and without labels it returns the logits (b, t, v) of all positions:
        the number of unpadded ones is not known before it runs, which would cut the graph in two.

        Args:
            source: ids (b, s).
            shifted: target ids (b, t), shifted right, padded at the positions of padded labels.
            labels: ids (n,) of the unpadded positions.
            smoothing: see `loss.cross_entropy`.
            real: the unpadded positions (n,) among all b * t, see `loss.real_positions`.
        """
        mask = padding_mask(source)
        memory = self.encode(source, mask)
        hidden = self.decoder(self.embedding(shifted), memory, mask)
        if real is not None:
            hidden = hidden.flatten(0, 1).index_select(0, real)
        elif self.training and torch.compiler.is_compiling():
            return self.score(hidden)
        else:
            hidden = hidden[shifted != PAD]
        if labels is None:
            return self.score(hidden)
        return linear_cross_entropy(hidden, self.output_weight, labels, smoothing)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (v, width) that scores hidden states."""
        return self.embedding.tokens.weight if self.projection is None else self.projection.weight

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Memory (b, s, width) of ids (b, s)."""
        return cast(Tensor, self.encoder(self.embedding(source), mask))

    def score(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden states (..., width)."""
        return nn.functional.linear(hidden, self.output_weight)


def _attention(a: Architecture, *, cross: bool = False) -> Attention:
    return Attention(a.width, a.num_heads, a.layout, a.kernel, cross=cross)


def padding_mask(source: Tensor) -> Tensor:
    """(b, 1, 1, s), True for positions of ids (b, s) that are not padding."""
    return (source != PAD)[:, None, None]


def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """Sines, then cosines, (length, width), of the positions (Vaswani et al. 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
    angles = torch.arange(length, device=device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Xavier-uniform matrices, zero biases, normal embeddings with deviation width^-0.5."""
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
