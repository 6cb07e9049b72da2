"""Training loops of a user's own, as they write them with `trial.prepare`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from toy import Model

from workers.context import Context

WORDS = 16


class Pictures(nn.Module):
    """Convolutions around residual connections, for images (rows, 3, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)
        self.stages = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        x = self.into(images)
        for stage in self.stages:
            x = x + functional.gelu(stage(x))
        return self.out(x.mean((2, 3)))


def texts(count: int) -> Any:
    for _ in range(count):
        yield torch.randint(WORDS, (8, 6))


def pictures(count: int) -> Any:
    for _ in range(count):
        images = torch.randn(8, 3, 8, 8)
        yield images, images.mean((2, 3)).argmax(1)


def text_loss(model: Any, text: Tensor) -> Tensor:
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def picture_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def made(kind: str) -> tuple[nn.Module, torch.optim.Optimizer, Any, Any]:
    """Model, optimizer, batches (given how many) and loss."""
    torch.manual_seed(3)
    if kind == "texts":
        model: nn.Module = Model(WORDS, 16, 2, 2, 0.0)
        return model, torch.optim.AdamW(model.parameters(), lr=3e-3), texts, text_loss
    model = Pictures()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, pictures, picture_loss


def by_hand(kind: str, updates: int) -> list[float]:
    """The losses of the loop without automl."""
    model, optimizer, batches, loss_of = made(kind)
    losses = []
    for batch in batches(updates):
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def own_loop(trial: Context) -> None:
    """Train; `until` ends it early with a saved state, from which another attempt goes on."""
    updates, kind = trial.params["updates"], trial.params["kind"]
    until = trial.params.get("until", updates)
    model, optimizer, batches, loss_of = made(kind)
    model, optimizer, loader = trial.prepare(model, optimizer, batches(updates))
    if trial.assignment.resume:  # the earlier attempt of this gang has just ended
        state = trial.restore()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    begun = optimizer.updates
    for number, batch in enumerate(loader):
        parts = trial.params.get("accumulation", 1)
        if number < begun * parts:  # what an earlier attempt has trained
            continue
        loss = loss_of(model, batch)
        trial.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        trial.report(number, loss=loss, train_loss=loss)
        if optimizer.updates == until:
            break
    trial.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
