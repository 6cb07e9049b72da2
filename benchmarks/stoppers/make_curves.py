"""Makes the learning-curve tables of `curves.py`: trains every configuration of a grid once.

    python benchmarks/stoppers/make_curves.py [digits recurrent modular factors]

The curves of these small models differ in kind: a classifier of digits (curves cross early), a
recurrent language model (noisy, some diverge), modular addition (long plateaus, then a sudden fall)
and a matrix factorisation (many overfit and rise again). Configurations of one shape are trained
together, each with its own weights, learning rate and noise. The seconds of a report are not
measured: they are a fixed part and a part that grows with the model.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.options import parser
from benchmarks.stoppers.curve_problems import FOLDER

Grid = Mapping[str, list[float]]
Train = Callable[[dict[str, float], dict[str, Tensor]], Iterator[Tensor]]
# The grid, the training, the parameters that set the shape, and the seconds of a report by shape.
Task = tuple[Grid, Train, tuple[str, ...], Callable[[dict[str, float]], float]]

DIGITS: Final[Grid] = {
    "lr": [10 ** (-3 + 3.6 * i / 9) for i in range(10)],
    "decay": [1e-6, 1e-4, 1e-2],
    "width": [4, 8, 16, 32, 64],
    "batch": [16, 64, 256],
}
RECURRENT: Final[Grid] = {
    "lr": [10 ** (-3 + 3.3 * i / 9) for i in range(10)],
    "clip": [0.1, 1.0, 10.0],
    "gain": [0.3, 1.0, 2.0],
    "width": [6, 12, 24],
}
MODULAR: Final[Grid] = {
    "lr": [10 ** (-3 + 2.5 * i / 7) for i in range(8)],
    "decay": [10 ** (-1 + 1.5 * i / 7) for i in range(8)],
    "scale": [0.1, 0.3, 1.0],
    "width": [24, 48, 96],
}
FACTORS: Final[Grid] = {
    "lr": [10 ** (-2 + 2.4 * i / 9) for i in range(10)],
    "decay": [1e-4, 1e-3, 1e-2, 1e-1],
    "scale": [0.03, 0.1, 0.3, 1.0],
    "rank": [2, 4, 8, 16],
}


def digits(shape: dict[str, float], each: dict[str, Tensor]) -> Iterator[Tensor]:
    """Validation cross-entropy of a two-layer network; a report after each epoch."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16 - 0.3
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=seeded(0))
    x = x[order]
    y = y[order]
    count = len(each["lr"])
    width = int(shape["width"])
    size = int(shape["batch"])
    w = [
        normal(count, 64, width, 1 / 8),
        normal(count, width, width, width**-0.5),
        normal(count, width, 10, width**-0.5),
    ]
    generator = seeded(1)

    def loss(rows: Tensor, labels: Tensor) -> Tensor:
        h = torch.relu(torch.einsum("nd,cdh->cnh", rows, w[0]))
        h = torch.relu(torch.bmm(h, w[1]))
        scores = torch.bmm(h, w[2]).flatten(0, 1)
        return (
            F.cross_entropy(scores, labels.repeat(count), reduction="none").view(count, -1).mean(1)
        )

    for _ in range(50):
        for rows in torch.randperm(600, generator=generator).split(size):
            _descend(loss(x[rows], y[rows]), w, each)
        with torch.no_grad():
            yield loss(x[600:], y[600:])


def recurrent(shape: dict[str, float], each: dict[str, Tensor]) -> Iterator[Tensor]:
    """Validation loss of a recurrent network; a report after every 4 updates.

    The sequences come from a random second-order process.
    """
    source = np.random.default_rng(5)
    table = torch.tensor(source.dirichlet([0.08] * 12, size=(12, 12)), dtype=torch.float32)
    generator = seeded(2)
    count = len(each["lr"])
    width = int(shape["width"])
    recur = scaled(normal(count, width, width, width**-0.5), each["gain"])
    w = [normal(count, 12, width, 0.3), recur, normal(count, width, 12, width**-0.5)]

    def draw(number: int) -> Tensor:
        tokens = [torch.randint(12, (number,), generator=generator) for _ in range(2)]
        while len(tokens) < 18:
            tokens.append(
                torch.multinomial(table[tokens[-2], tokens[-1]], 1, generator=generator)[:, 0]
            )
        return torch.stack(tokens, 1)

    def loss(tokens: Tensor) -> Tensor:
        h = torch.zeros(count, len(tokens), width)
        total = torch.zeros(count)
        for t in range(tokens.shape[1] - 1):
            h = torch.tanh(w[0][:, tokens[:, t]] + torch.bmm(h, w[1]))
            scores = torch.bmm(h, w[2]).flatten(0, 1)
            total = total + F.cross_entropy(
                scores, tokens[:, t + 1].repeat(count), reduction="none"
            ).view(count, -1).mean(1)
        return total / (tokens.shape[1] - 1)

    held_out = draw(100)
    for _ in range(50):
        for _ in range(4):
            _descend(loss(draw(16)), w, each)
        with torch.no_grad():
            yield loss(held_out)


def modular(shape: dict[str, float], each: dict[str, Tensor]) -> Iterator[Tensor]:
    """Validation loss of addition modulo 17; a report after every 40 full updates of AdamW."""
    p = 17
    width = int(shape["width"])
    count = len(each["lr"])
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))[
        torch.randperm(p * p, generator=seeded(3))
    ]
    labels = pairs.sum(1) % p
    split = int(0.7 * p * p)
    w = [
        scaled(normal(count, p, width, 0.3), each["scale"]),
        scaled(normal(count, p, width, 0.3), each["scale"]),
        normal(count, width, p, width**-0.5),
    ]
    descend = Adam(w, each)

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        h = torch.relu(w[0][:, rows[:, 0]] + w[1][:, rows[:, 1]]) ** 2
        scores = torch.bmm(h, w[2]).flatten(0, 1)
        return (
            F.cross_entropy(scores, targets.repeat(count), reduction="none").view(count, -1).mean(1)
        )

    for _ in range(50):
        for _ in range(40):
            descend(loss(pairs[:split], labels[:split]))
        with torch.no_grad():
            yield loss(pairs[split:], labels[split:])


def factors(shape: dict[str, float], each: dict[str, Tensor]) -> Iterator[Tensor]:
    """Validation error of a matrix factorisation; a report after every 25 updates.

    The matrix has rank 5 and noise; the updates are stochastic gradient steps.
    """
    generator = seeded(4)
    count = len(each["lr"])
    rank = int(shape["rank"])
    truth = (
        torch.randn(90, 5, generator=generator) @ torch.randn(5, 70, generator=generator) / 5**0.5
    )
    noisy = truth + 0.4 * torch.randn(90, 70, generator=generator)
    cells = torch.cartesian_prod(torch.arange(90), torch.arange(70))[
        torch.randperm(6300, generator=generator)
    ]
    train = cells[:2000]
    held_out = cells[2000:]
    w = [
        scaled(normal(count, 90, rank, 1.0), each["scale"]),
        scaled(normal(count, 70, rank, 1.0), each["scale"]),
    ]

    def loss(rows: Tensor, matrix: Tensor) -> Tensor:
        guess = (w[0][:, rows[:, 0]] * w[1][:, rows[:, 1]]).sum(2)
        return (guess - matrix[rows[:, 0], rows[:, 1]]).square().mean(1)

    for _ in range(50):
        for _ in range(25):
            rows = train[torch.randint(2000, (128,), generator=generator)]
            _descend(loss(rows, noisy) * 16, w, each)
        with torch.no_grad():
            yield loss(held_out, truth).sqrt()


TASKS: Final[Mapping[str, Task]] = {
    "digits": (
        DIGITS,
        digits,
        ("width", "batch"),
        lambda s: 0.5 + s["width"] / 32 + 16 / s["batch"],
    ),
    "recurrent": (RECURRENT, recurrent, ("width",), lambda s: 0.5 + s["width"] / 24),
    "modular": (MODULAR, modular, ("width",), lambda s: 0.5 + s["width"] / 48),
    "factors": (FACTORS, factors, ("rank",), lambda s: 0.5 + s["rank"] / 16),
}


def make(name: str, task: Task) -> None:
    """Train a grid; write `NAME.npz`: curves (grid x reports), seconds of a report, the grid."""
    grid, train, shapes, seconds = task
    own = [key for key in grid if key not in shapes]
    settings = list(itertools.product(*(grid[key] for key in own)))
    each = {key: torch.tensor([s[i] for s in settings]) for i, key in enumerate(own)}
    worst = 3.0 * math.log(12)
    curves = []
    for values in itertools.product(*(grid[key] for key in shapes)):
        torch.manual_seed(len(curves))
        reports = torch.stack(list(train(dict(zip(shapes, values, strict=True)), each)), 1)
        curves.append(torch.nan_to_num(reports, nan=worst, posinf=worst).clamp(max=worst).numpy())
    sizes = [len(grid[key]) for key in shapes] + [len(grid[key]) for key in own]
    table = np.stack(curves).reshape(*sizes, -1)
    costs = [
        seconds(dict(zip(shapes, values, strict=True)))
        for values in itertools.product(*(grid[k] for k in shapes))
    ]
    FOLDER.mkdir(exist_ok=True)
    axes = {f"axis_{i}_{key}": np.array(grid[key]) for i, key in enumerate([*shapes, *own])}
    np.savez_compressed(
        FOLDER / f"{name}.npz", curves=table.astype(np.float32), seconds=np.array(costs), **axes
    )


def _descend(losses: Tensor, w: list[Tensor], each: dict[str, Tensor]) -> None:
    """One step of every model, with its own learning rate, gradient clipping and weight decay."""
    grads = torch.autograd.grad(losses.sum(), w)
    grads = tuple(torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0) for grad in grads)
    norm = sum(grad.square().sum((1, 2)) for grad in grads).sqrt()  # type: ignore[union-attr]
    factor = (each.get("clip", torch.tensor(10.0)) / (norm + 1e-9)).clamp(max=1.0) * each["lr"]
    for value, grad in zip(w, grads, strict=True):
        value.data -= factor.view(-1, 1, 1) * grad
        if "decay" in each:
            value.data *= (1 - (each["lr"] * each["decay"]).clamp(max=0.5)).view(-1, 1, 1)


class Adam:
    """AdamW (Loshchilov and Hutter, 2019) for many models, each with its own rate and decay."""

    def __init__(self, w: list[Tensor], each: dict[str, Tensor]) -> None:
        self.w = w
        self.step = 0
        self.lr = each["lr"].view(-1, 1, 1)
        self.decay = each["decay"].view(-1, 1, 1)
        self.moments = [(torch.zeros_like(v), torch.zeros_like(v)) for v in w]

    def __call__(self, losses: Tensor) -> None:
        """One update."""
        self.step += 1
        grads = torch.autograd.grad(losses.sum(), self.w)
        for value, grad, (first, second) in zip(self.w, grads, self.moments, strict=True):
            first.mul_(0.9).add_(grad, alpha=0.1)
            second.mul_(0.98).addcmul_(grad, grad, value=0.02)
            update = first / (1 - 0.9**self.step) / ((second / (1 - 0.98**self.step)).sqrt() + 1e-8)
            value.data -= self.lr * (update + self.decay * value.data)


def normal(count: int, rows: int, columns: int, scale: float) -> Tensor:
    return (torch.randn(count, rows, columns) * scale).requires_grad_()


def scaled(values: Tensor, factor: Tensor) -> Tensor:
    return (values.detach() * factor.view(-1, 1, 1)).requires_grad_()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_tables(tasks: Mapping[str, Task], doc: str | None) -> None:
    """Make the tables that the command line names, or all of `tasks`."""
    options = parser(doc)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(tasks)}")
    names = options.parse_args().names
    if unknown := set(names) - set(tasks):
        options.error(f"unknown table {min(unknown)!r}; known: {', '.join(tasks)}")
    torch.set_num_threads(1)
    for name in names or tasks:
        began = time.time()
        make(name, tasks[name])
        print(f"{name}: {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    make_tables(TASKS, __doc__)
