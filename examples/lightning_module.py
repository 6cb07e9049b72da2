"""A Lightning module: the callback reports each epoch, and asha pauses what is behind."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import automl
from automl import Choice, Float, Int, Space
from automl.integrations.lightning import LightningCallback

EPOCHS = 9
SPACE = Space(
    Float("lr", 1e-4, 1e-1, log=True, default=1e-3, affects={"quality"}),
    Float("dropout", 0.0, 0.5, default=0.1, affects={"quality"}),
    Int("width", 8, 128, log=True, default=32),
    Choice("activation", ["relu", "tanh"], default="relu"),
)


class Rings(LightningModule):
    """Tells on which of three rings a point is."""

    def __init__(self, lr: float, dropout: float, width: int, activation: str) -> None:
        super().__init__()
        kind = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
        self.lr = lr
        self.layers = nn.Sequential(
            nn.Linear(2, width), kind(), nn.Dropout(dropout), nn.Linear(width, 3)
        )

    def training_step(self, batch: Any, place: int) -> torch.Tensor:
        points, rings = batch
        return nn.functional.cross_entropy(self.layers(points), rings)

    def validation_step(self, batch: Any, place: int) -> None:
        points, rings = batch
        self.log("val_error", (self.layers(points).argmax(1) != rings).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.lr)


def data(count: int, seed: int) -> DataLoader[Any]:
    """Points on three rings, with noise."""
    generator = torch.Generator().manual_seed(seed)
    rings = torch.arange(count) % 3
    angle = torch.rand(count, generator=generator) * 2 * torch.pi
    radius = rings + 1 + 0.2 * torch.randn(count, generator=generator)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return DataLoader(TensorDataset(points, rings), batch_size=50)


def objective(trial: Any) -> None:
    """Train; the goal is a metric that the module logs."""
    torch.manual_seed(trial.seed)
    callback = LightningCallback(trial)
    trainer = Trainer(
        max_epochs=EPOCHS,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Rings(**trial.params)
    trainer.fit(model, data(600, 0), data(300, 1), ckpt_path=callback.checkpoint)


def main(trials: int = 16, dispatcher: str = "local") -> automl.Result:
    """Tune it; a paused trial goes on from its Lightning checkpoint."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize val_error",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        stopper="asha",
        max_steps=EPOCHS,
        name="rings",
        resume=True,
    )
    print(f"error {result.best.value:.3f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=16)
    main(parser.parse_args().trials)
