"""A small GPT in a training loop of one's own: every knob, by four lines that differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import automl
from automl import Float, Space

WIDTH, HEADS, BLOCKS, LENGTH = 64, 4, 2, 32
TEXT = "".join(f"{a} times {b} is {a * b}. " for a in range(40) for b in range(40))
CHARACTERS = sorted(set(TEXT))
CODES = torch.tensor([CHARACTERS.index(one) for one in TEXT])


class Block(nn.Module):
    """Causal attention and two linear layers; input and output (rows, positions, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_linear = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.into(self.norm_attention(x)).unflatten(-1, (3, HEADS, -1))
        seen = functional.scaled_dot_product_attention(
            *parts.permute(2, 0, 3, 1, 4), is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_linear(x))))


class Gpt(nn.Module):
    """Predicts the next character; the first and the last layer share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(CHARACTERS), bias=False)
        for table in (self.characters, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.characters.weight

    def forward(self, text: Tensor) -> Tensor:
        """The mean loss of texts (rows, LENGTH + 1)."""
        x = self.characters(text[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(
            self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten()
        )


def batches(count: int) -> Iterator[Tensor]:
    """Batches of 32 pieces of the text."""
    for _ in range(count):
        starts = torch.randint(len(CODES) - LENGTH, (32,))
        yield torch.stack([CODES[start : start + LENGTH + 1] for start in starts])


def train(trial: Any, updates: int) -> None:
    """Train for so many updates, and report each."""
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.params["lr"])
    loader = batches(updates)
    model, optimizer, loader = trial.prepare(model, optimizer, loader, clip_norm=1.0)
    for step, batch in enumerate(loader):
        loss = model(batch)
        trial.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if not trial.report(step, loss=loss):
            break


def main(
    trials: int = 12,
    updates: int = 100,
    knobs: tuple[str, ...] = ("precision", "compile", "accumulation", "parallelism"),
    dispatcher: str = "auto",
) -> automl.Result:
    """Tune the learning rate, and what decides speed and memory."""
    rate = Float("lr", 1e-4, 1e-1, log=True, default=1e-3, affects={"quality"})
    space = Space(rate, *automl.knobs(*knobs))
    result = automl.sweep(
        partial(train, updates=updates),
        space,
        "minimize loss",
        trials=trials,
        workers=2,
        stopper="asha",
        dispatcher=dispatcher,
        name="gpt",
        resume=True,
    )
    print(f"loss {result.best.value:.3f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    main(parser.parse_args().trials).save_report("gpt.html")
