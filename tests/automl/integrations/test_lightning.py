"""A training of Lightning is reported, stopped, and goes on after a pause as if there was none."""

from pathlib import Path
from typing import Any

import paused
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

lightning = pytest.importorskip("lightning.pytorch", reason="install automl-sweep[lightning]")

from automl.integrations.lightning import LightningCallback  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("frozen_heap"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SPACE = {"lr": (0.01, 0.3)}


class Line(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, lr: float, trial: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = torch.nn.Linear(2, 1)
        self.lr = lr
        self.trial = trial

    def training_step(self, batch: Any, place: int) -> torch.Tensor:
        return self._loss(batch, "loss")

    def validation_step(self, batch: Any, place: int) -> None:
        self._loss(batch, "val_loss")

    def on_train_epoch_start(self) -> None:
        if self.trial is not None:
            paused.log(self.trial, self.current_epoch + 1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)

    def _loss(self, batch: Any, name: str) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.line(x), y)
        self.log(name, loss)
        return loss


def fit(model: Line, callback: Any = None) -> Any:
    x = torch.linspace(-1, 1, 32).reshape(16, 2)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True) + 0.5), batch_size=4)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    given: Any = {"max_epochs": paused.STEPS, "accelerator": "cpu", "callbacks": callback}
    trainer = lightning.Trainer(**given, **dict.fromkeys(off, False))
    trainer.fit(model, data, data, ckpt_path=callback.checkpoint if callback else None)
    return trainer


def objective(trial: Any) -> None:
    fit(Line(trial.params["lr"], trial), LightningCallback(trial))


def test_a_paused_training_goes_on_as_if_it_was_not_paused(tmp_path: Path) -> None:
    result = paused.sweep(objective, SPACE, "minimize val_loss", tmp_path)
    resumed = paused.check(result, tmp_path)
    whole = fit(Line(resumed.params["lr"]))
    expected = whole.callback_metrics["val_loss"].item()
    assert resumed.reports[-1].metrics["val_loss"] == pytest.approx(expected, rel=1e-6)
    assert {"loss", "val_loss"} <= set(resumed.metrics)
