"""The review classifier: embedding, recurrent layers, pooling over the words, two classes.

The layers are GRU, LSTM or QRNN.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from .data import PAD


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """The recurrence by doubling: after pass k each step covers the 2^k steps before it.

    Hillis and Steele 1986.
    """
    shift = 1
    steps = a.shape[0]
    while shift < steps:
        b = torch.cat([b[:shift], torch.addcmul(b[shift:], a[shift:], b[:-shift])])
        a = torch.cat([a[:shift], a[shift:] * a[:-shift]])
        shift *= 2
    return b


class _LinearScan(torch.autograd.Function):
    """`_scan` with a backward pass that is the same recurrence in reversed time.

    Only a and h are stored.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """a, b and the result have shape (steps, ...); h[-1] is 0."""
        h = _scan(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of a and b; differentiable again."""
        a, h = ctx.saved_tensors
        later = torch.cat([a[1:], torch.zeros_like(a[:1])])  # a[t + 1], 0 at the end
        grad_b = linear_scan(later.flip(0), gradients[0].flip(0)).flip(0)
        before = torch.cat([torch.zeros_like(h[:1]), h[:-1]])  # h[t - 1], 0 at the beginning
        return grad_b * before, grad_b


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """h with h[t] = a[t] h[t-1] + b[t] and h[-1] = 0.

    Args:
        a: factors, shape (steps, ...); stable if they are at most 1 in magnitude.
        b: inputs, the same shape.

    Returns:
        h, the same shape.

    Example:
        >>> linear_scan(torch.full((3,), 0.5), torch.ones(3))
        tensor([1.0000, 1.5000, 1.7500])
    """
    if not torch.is_grad_enabled():
        return _scan(a, b)
    return cast(Tensor, _LinearScan.apply(a, b))  # type: ignore[no-untyped-call]


class QuasiRecurrent(nn.Module):
    """A quasi-recurrent layer with fo-pooling (Bradbury et al. 2017, arXiv:1611.01576).

    A causal convolution over `window` steps computes z, f and o for all steps at once. The rest,
    c[t] = f[t] c[t-1] + (1 - f[t]) z[t] and h[t] = o[t] c[t], is a linear scan.
    """

    def __init__(self, input_size: int, hidden_size: int, window: int = 2) -> None:
        super().__init__()
        self.window = window
        self.gates = nn.Linear(window * input_size, 3 * hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """(steps, batch, input_size) to (steps, batch, hidden_size)."""
        padded = nn.functional.pad(x, (0, 0, 0, 0, self.window - 1, 0))
        windows = torch.cat([padded[i : i + x.shape[0]] for i in range(self.window)], dim=-1)
        z, f, o = self.gates(windows).chunk(3, dim=-1)
        f = torch.sigmoid(f)
        return torch.sigmoid(o) * linear_scan(f, (1 - f) * torch.tanh(z))


class Recurrent(nn.Module):
    """Layers of one kind of cell, in one direction or both.

    Args:
        cell: "gru", "lstm" or "qrnn".
        sizes: input and hidden size.
        layout: "batch_major" takes (batch, steps, size), "time_major" takes (steps, batch, size).
    """

    def __init__(
        self,
        cell: str,
        sizes: tuple[int, int],
        num_layers: int,
        bidirectional: bool,
        layout: str,
    ) -> None:
        super().__init__()
        input_size, hidden_size = sizes
        directions = 1 + bidirectional
        self.cell = cell
        self.batch_major = layout == "batch_major"
        self.directions = directions
        if cell == "qrnn":
            widths = [input_size] + [hidden_size * directions] * (num_layers - 1)
            self.layers = nn.ModuleList(
                QuasiRecurrent(w, hidden_size) for w in widths for _ in range(directions)
            )
        else:
            kind = nn.GRU if cell == "gru" else nn.LSTM
            self.rnn = kind(
                input_size,
                hidden_size,
                num_layers,
                batch_first=self.batch_major,
                bidirectional=bidirectional,
            )
            _initialise(self.rnn)

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states of the last layer, in the layout of x; both directions are concatenated."""
        if self.cell != "qrnn":
            lacks_fp16 = self.cell == "lstm" and x.device.type == "cpu"  # oneDNN, on some CPUs
            if lacks_fp16 and torch.get_autocast_dtype("cpu") == torch.half:
                with torch.autocast("cpu", enabled=False):
                    return cast(Tensor, self.rnn(x.float())[0])
            return cast(Tensor, self.rnn(x)[0])
        x = x.transpose(0, 1) if self.batch_major else x
        for layer in range(0, len(self.layers), self.directions):
            found = [self.layers[layer](x)]
            if self.directions == 2:
                found.append(self.layers[layer + 1](x.flip(0)).flip(0))
            x = torch.cat(found, dim=-1)
        return x.transpose(0, 1) if self.batch_major else x


def _initialise(rnn: nn.GRU | nn.LSTM) -> None:
    """Glorot input weights, orthogonal recurrent weights, zero biases, as in the comparison."""
    for name, weight in rnn.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(weight)
            continue
        for part in weight.chunk(3 if isinstance(rnn, nn.GRU) else 4):
            bound = math.sqrt(6 / sum(part.shape))
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(part)
            else:
                nn.init.uniform_(part, -bound, bound)


@dataclass(frozen=True)
class SentimentModelOptions:
    """Options of the model; the defaults are the published setting."""

    vocabulary: int = 30_000
    embedding_size: int = 125
    hidden_size: int = 100
    num_layers: int = 1
    cell: str = "gru"
    bidirectional: bool = False
    pooling: str = "last"
    dropout: float = 0.2
    layout: str = "batch_major"


class SentimentModel(nn.Module):
    """Maps reviews as word ids, padded in front, to the logits of bad and good."""

    def __init__(self, options: SentimentModelOptions) -> None:
        super().__init__()
        self.options = options
        self.embedding = nn.Embedding(options.vocabulary, options.embedding_size, padding_idx=PAD)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.recurrent = Recurrent(
            options.cell,
            (options.embedding_size, options.hidden_size),
            options.num_layers,
            options.bidirectional,
            options.layout,
        )
        self.dropout = nn.Dropout(options.dropout)
        self.output = nn.Linear(options.hidden_size * (1 + options.bidirectional), 2)

    def forward(self, words: Tensor) -> Tensor:
        """(batch, steps) ids to (batch, 2) logits."""
        time_major = self.options.layout == "time_major"
        ids = words.t().contiguous() if time_major else words
        states = self.recurrent(self.dropout(self.embedding(ids)))
        states = states if time_major else states.transpose(0, 1)
        return self.output(self.dropout(self._pool(states, words)))  # type: ignore[no-any-return]

    def _pool(self, states: Tensor, words: Tensor) -> Tensor:
        """(steps, batch, size) to (batch, size), ignoring padding."""
        real = (words != PAD).t().unsqueeze(-1)
        if self.options.pooling == "mean":
            return (states * real).sum(0) / real.sum(0).clamp(min=1)
        if self.options.pooling == "max":
            highest = states.masked_fill(~real, torch.finfo(states.dtype).min).amax(0)
            return highest.masked_fill(~real.any(0), 0.0)  # a review without words
        if not self.options.bidirectional:
            return states[-1]
        forward, backward = states.chunk(2, dim=-1)
        # The backward direction ends at the first word of the review.
        first = real.squeeze(-1).int().argmax(0)
        at = first.view(1, -1, 1).expand(1, -1, backward.shape[-1])
        return torch.cat([forward[-1], backward.gather(0, at).squeeze(0)], dim=-1)
