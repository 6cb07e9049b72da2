"""A training of Keras is reported, stopped, and goes on after a pause as if there was none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import paused
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="install automl-sweep[keras]")

from automl.integrations.keras import KerasCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("frozen_heap")
SPACE = {"lr": (0.01, 0.3)}
X = np.linspace(-1, 1, 64, dtype="float32").reshape(32, 2)
Y = X.sum(1, keepdims=True) + 0.5


class Log(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, trial: Any) -> None:
        super().__init__()
        self.trial = trial

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        paused.log(self.trial, epoch + 1)


def fit(params: Any, callbacks: Any = ()) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(params["lr"], momentum=0.9), "mse")
    return model.fit(
        X,
        Y,
        epochs=paused.STEPS,
        batch_size=16,
        shuffle=False,
        verbose=0,
        validation_data=(X, Y),
        callbacks=list(callbacks),
    )


def objective(trial: Any) -> None:
    fit(trial.params, [Log(trial), KerasCallback(trial)])


def test_a_paused_training_goes_on_as_if_it_was_not_paused(tmp_path: Path) -> None:
    result = paused.sweep(objective, SPACE, "minimize val_loss", tmp_path)
    resumed = paused.check(result, tmp_path)
    expected = fit(resumed.params).history["val_loss"][-1]
    assert resumed.reports[-1].metrics["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert {"loss", "val_loss"} <= set(resumed.metrics)
