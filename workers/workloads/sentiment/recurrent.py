"""Recurrent layers: GRU and LSTM by fused kernels or cell by cell, and QRNN."""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn


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


def run_cells(rnn: nn.GRU | nn.LSTM, x: Tensor, suffix: str) -> Tensor:
    """One layer and direction of `rnn`, cell by cell: the same function as its fused kernel.

    Args:
        rnn: holds the weights.
        x: (steps, batch, input_size).
        suffix: of the names of the weights, such as "l0".

    Returns:
        Hidden states, (steps, batch, hidden_size).
    """
    w_ih, w_hh, b_ih, b_hh = (
        getattr(rnn, f"{n}_{suffix}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    projected = nn.functional.linear(x, w_ih, b_ih)
    h = x.new_zeros(x.shape[1], rnn.hidden_size, dtype=projected.dtype)
    c = h
    states = []
    for step in projected:
        recurrent = nn.functional.linear(h, w_hh, b_hh)
        if isinstance(rnn, nn.LSTM):
            i, f, g, o = (step + recurrent).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        else:
            ri, zi, ni = step.chunk(3, dim=-1)
            rh, zh, nh = recurrent.chunk(3, dim=-1)
            n = torch.tanh(ni + torch.sigmoid(ri + rh) * nh)
            h = torch.lerp(n, h, torch.sigmoid(zi + zh).to(n.dtype))
        states.append(h)
    return torch.stack(states)


class Recurrent(nn.Module):
    """Layers of one kind of cell, in one direction or both.

    Args:
        cell: "gru", "lstm" or "qrnn".
        sizes: input and hidden size.
        kernel: "fused" or "cells", for gru and lstm; the weights are the same.
        layout: "batch_major" takes (batch, steps, size), "time_major" takes (steps, batch, size).
    """

    def __init__(
        self,
        cell: str,
        sizes: tuple[int, int],
        num_layers: int,
        bidirectional: bool,
        kernel: str,
        layout: str,
    ) -> None:
        super().__init__()
        input_size, hidden_size = sizes
        directions = 1 + bidirectional
        self.cell = cell
        self.kernel = kernel
        self.batch_major = layout == "batch_major"
        self.num_layers = num_layers
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
        if self.cell != "qrnn" and self.kernel == "fused":
            return self.rnn(x)[0]  # type: ignore[no-any-return]
        x = x.transpose(0, 1) if self.batch_major else x
        for layer in range(self.num_layers):
            x = torch.cat(
                [self._direction(x, layer, back) for back in range(self.directions)], dim=-1
            )
        return x.transpose(0, 1) if self.batch_major else x

    def _direction(self, x: Tensor, layer: int, back: int) -> Tensor:
        x = x.flip(0) if back else x
        if self.cell == "qrnn":
            h: Tensor = self.layers[layer * self.directions + back](x)
        else:
            h = run_cells(self.rnn, x, f"l{layer}" + ("_reverse" if back else ""))
        return h.flip(0) if back else h


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
