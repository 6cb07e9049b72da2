"""Trains many tiny networks at once, each with its own settings and its own seed, with torch.

Initial weights, order of the examples and dropout differ from network to network, as they do from
seed to seed in a real training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Examples:
    """Examples to learn from and to judge by.

    Args:
        x, y: `n x d` inputs and `n` labels (or `n x k` targets) to train on.
        valid_x, valid_y: likewise, to judge by.
    """

    x: Tensor
    y: Tensor
    valid_x: Tensor
    valid_y: Tensor

    @classmethod
    def split(cls, x: np.ndarray, y: np.ndarray, train: int, valid: int) -> Examples:
        """The first examples after a fixed shuffle, inputs and targets standardised."""
        order = np.random.default_rng(0).permutation(len(x))[: train + valid]
        x = (x - x.mean(0)) / (x.std(0) + 1e-9)
        if y.dtype.kind == "f":
            y = (y - y.mean(0)) / y.std(0)
        inputs, labels = torch.from_numpy(x[order]).float(), torch.from_numpy(y[order])
        labels = labels.float() if y.dtype.kind == "f" else labels
        return cls(inputs[:train], labels[:train], inputs[train:], labels[train:])


def settings(configurations: list[dict[str, Any]], seeds: int) -> dict[str, Tensor]:
    """Each parameter as `m`, a configuration's seeds one after the other."""
    return {
        name: torch.tensor([float(one[name]) for one in configurations]).repeat_interleave(seeds)
        for name in configurations[0]
    }


def perceptrons(
    data: Examples,
    given: Mapping[str, Tensor],
    outputs: int,
    *,
    most_units: int,
    updates: int = 120,
    batch: int = 16,
    seed: int = 0,
) -> Tensor:
    """Outputs of `m` networks of one hidden layer on the validation inputs, `m x v x outputs`.

    Args:
        given: `m` each: `rate`, `momentum`, `units`, `dropout`, `decay` and `scale` (of the initial
            weights); what is missing has a usual value.
        outputs: how many each network has; several are logits of classes if `y` holds labels.
    """
    generator = torch.Generator().manual_seed(seed)
    m, d = len(given["rate"]), data.x.shape[1]
    usual = {"momentum": 0.0, "units": most_units, "dropout": 0.0, "decay": 0.0, "scale": 1.0}
    own = {name: given.get(name, torch.full((m,), float(value))) for name, value in usual.items()}
    rate = given["rate"]
    mask = (torch.arange(most_units) < own["units"][:, None]).float()[:, None, :]

    def drawn(rows: int, columns: int) -> Tensor:
        values = torch.randn((m, rows, columns), generator=generator)
        return values * own["scale"][:, None, None] / rows**0.5

    weights = [drawn(d, most_units), torch.zeros(m, 1, most_units)]
    weights += [drawn(most_units, outputs), torch.zeros(m, 1, outputs)]
    for one in weights:
        one.requires_grad_()
    speeds = [torch.zeros_like(one) for one in weights]

    def forward(x: Tensor, keep: Tensor) -> Tensor:
        hidden = torch.relu(x @ weights[0] + weights[1]) * mask * keep
        return hidden @ weights[2] + weights[3]

    for _ in range(updates):
        rows = torch.randint(len(data.x), (m, batch), generator=generator)
        drop = own["dropout"][:, None, None]
        kept = torch.rand((m, batch, most_units), generator=generator) >= drop
        found = forward(data.x[rows], kept / (1 - drop))
        target = data.y[rows]
        if target.dtype.is_floating_point:
            target = target.reshape(m, batch, -1)
            losses = (found - target).square().mean((1, 2))
        else:
            losses = (
                nn.functional.cross_entropy(
                    found.reshape(-1, outputs), target.reshape(-1), reduction="none"
                )
                .reshape(m, batch)
                .mean(1)
            )
        gradients = torch.autograd.grad(losses.sum(), weights)
        with torch.no_grad():
            for one, speed, gradient in zip(weights, speeds, gradients, strict=True):
                step = torch.nan_to_num(gradient).clamp(-10, 10)
                step = step + own["decay"][:, None, None] * one
                speed.mul_(own["momentum"][:, None, None]).add_(step)
                one.sub_(rate[:, None, None] * speed)
    with torch.no_grad():
        return forward(data.valid_x.expand(m, -1, -1), torch.ones(1))


def accuracies(outputs: Tensor, labels: Tensor) -> Tensor:
    """Share of correct answers, `m`."""
    return (torch.nan_to_num(outputs).argmax(2) == labels).float().mean(1)


def determinations(outputs: Tensor, targets: Tensor) -> Tensor:
    """Coefficients of determination, `m`, at least -1."""
    targets = targets.reshape(len(targets), -1)
    errors = (torch.nan_to_num(outputs, nan=1e6) - targets).square().mean((1, 2))
    return (1 - errors / targets.var(0, correction=0).mean()).clamp(min=-1.0)


def recurrent(
    given: Mapping[str, Tensor], *, most_units: int, updates: int = 150, seed: int = 0
) -> Tensor:
    """Coefficients of determination of `m` recurrent networks on the adding problem.

    The input is a sequence of 8 numbers, two of which are marked; the target is their sum
    (Hochreiter and Schmidhuber, "Long short-term memory", 1997).

    Args:
        given: `m` each: `rate`, `units`, `clip` (of the gradient), `scale` (of the recurrent
            weights).
    """
    generator = torch.Generator().manual_seed(seed)
    m = len(given["rate"])
    mask = (torch.arange(most_units) < given["units"][:, None]).float()[:, None, :]

    def sequences(count: int) -> tuple[Tensor, Tensor]:
        values = torch.rand((m, count, 8), generator=generator)
        places = torch.rand((m, count, 8), generator=generator).argsort(2)
        marks = (places < 2).float()
        return torch.stack([values, marks], 3), (values * marks).sum(2, keepdim=True) - 1.0

    def drawn(*shape: int) -> Tensor:
        return torch.randn((m, *shape), generator=generator) / shape[0] ** 0.5

    weights = [drawn(2, most_units), drawn(most_units, most_units), torch.zeros(m, 1, most_units)]
    weights[1] = weights[1] * given["scale"][:, None, None]
    weights += [drawn(most_units, 1), torch.zeros(m, 1, 1)]
    weights = [one.detach().requires_grad_() for one in weights]

    def forward(x: Tensor) -> Tensor:
        state = torch.zeros(m, x.shape[1], most_units)
        for place in range(x.shape[2]):
            state = torch.tanh(x[:, :, place] @ weights[0] + state @ weights[1] + weights[2]) * mask
        return state @ weights[3] + weights[4]

    for _ in range(updates):
        x, y = sequences(8)
        losses = (forward(x) - y).square().mean((1, 2))
        gradients = torch.autograd.grad(losses.sum(), weights)
        norms = torch.stack([one.square().sum((1, 2)) for one in gradients]).sum(0).sqrt()
        factor = given["rate"] * (given["clip"] / norms.clamp(min=1e-12)).clamp(max=1.0)
        with torch.no_grad():
            for one, gradient in zip(weights, gradients, strict=True):
                one.sub_(factor[:, None, None] * torch.nan_to_num(gradient))
    with torch.no_grad():
        x, y = sequences(64)
        errors = (torch.nan_to_num(forward(x), nan=1e3) - y).square().mean((1, 2))
        return (1 - errors / y.var((1, 2), correction=0)).clamp(min=-1.0)
