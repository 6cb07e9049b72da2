"""`digits.py` with `trial.prepare`.

`main` makes loaders, model, optimizer and scheduler; `train` and `test` are an epoch each. Its
dropout is 0: masks of dropout differ between ranks, so losses could not be compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Scores of ten classes for images (rows, 1, 12, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(512, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = torch.flatten(functional.max_pool2d(x, 2), 1)
        x = functional.relu(self.fc1(self.dropout(x)))
        return functional.log_softmax(self.fc2(x), dim=1)


def images(count: int) -> TensorDataset:
    """Images whose class is the place of their brightest row."""
    pixels = torch.randn(count, 1, 12, 12)
    return TensorDataset(pixels, pixels.mean((1, 3))[:, :10].argmax(1))


def train(model: nn.Module, train_loader: Any, optimizer: Any, trial: Any) -> None:
    """An epoch of training."""
    model.train()
    for _batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        output = model(data)
        loss = functional.nll_loss(output, target)
        trial.backward(loss)
        optimizer.step()
        trial.report(optimizer.updates - 1, loss=loss)


def test(model: nn.Module, test_loader: Any) -> float:
    """The mean loss of the test images."""
    model.eval()
    test_loss = 0.0
    with torch.no_grad():
        for data, target in test_loader:
            test_loss += functional.nll_loss(model(data), target, reduction="sum").item()
    return test_loss / len(test_loader.dataset)


def main(trial: Any, updates: int, epochs: int = 2) -> None:
    """Report the loss of each update, of `updates / epochs` batches an epoch."""
    torch.manual_seed(1)
    train_set, test_set = images(32 * updates // epochs), images(64)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.3)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    objects = (model, optimizer, train_loader)
    model, optimizer, train_loader = trial.prepare(*objects, blocks=["conv*", "fc*"])
    test_loader = DataLoader(test_set, batch_size=64, generator=torch.Generator())
    for _epoch in range(1, epochs + 1):
        train(model, train_loader, optimizer, trial)
        test(model, test_loader)
        scheduler.step()
