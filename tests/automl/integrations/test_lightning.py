"""A training of Lightning is reported, stopped, and goes on after a pause as if there was none."""

from __future__ import annotations

import logging
import time
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


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


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


def data() -> DataLoader[Any]:
    x = torch.linspace(-1, 1, 32).reshape(16, 2)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True) + 0.5), batch_size=4)


def fit(model: Line, callback: Any = None, **options: Any) -> Any:
    given: dict[str, Any] = {
        "max_epochs": paused.STEPS,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "callbacks": callback,
        **options,
    }
    trainer = lightning.Trainer(**given)
    trainer.fit(model, data(), data(), ckpt_path=callback.checkpoint if callback else None)
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


class SlowLine(Line):
    """Slow enough that a request to pause comes before the last epoch."""

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        time.sleep(0.4)


def ddp(trial: Any) -> None:
    model = SlowLine(trial.params["lr"], trial if trial.rank == 0 else None)
    fit(model, LightningCallback(trial), devices=2, strategy="ddp")


def test_two_ranks_pause_and_go_on_together(tmp_path: Path) -> None:
    options: dict[str, Any] = {"ranks": 2, "workers": 2, "dispatcher": "local", "trials": 2}
    result = paused.sweep(ddp, SPACE, "minimize val_loss", tmp_path, **options)
    assert [(t.state, t.failure) for t in result.trials] == [("completed", None)] * 2
    assert result.trials[1].attempts > 1
    (file,) = tmp_path.glob("**/trials/1/trained.log")
    assert [int(line) for line in file.read_text().split()] == list(range(1, paused.STEPS + 1))
