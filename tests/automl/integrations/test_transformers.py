"""Hugging Face's `Trainer` is reported, stopped and resumed, and searches with a sweep of ours."""

from pathlib import Path
from typing import Any

import paused
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="install automl-sweep[transformers]")
pytest.importorskip("accelerate", reason="install automl-sweep[transformers]")

from automl.integrations.transformers import TransformersCallback, checkpoint  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("frozen_heap"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SPACE = {"learning_rate": (0.001, 0.1)}


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> Any:
        tokens = torch.arange(place, place + 6) % 11
        return {"input_ids": tokens, "labels": tokens}


def model(parameters: Any = None) -> Any:
    assert not parameters or set(parameters) == set(SPACE)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=11,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


class Log(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, trial: Any) -> None:
        self.trial = trial

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        paused.log(self.trial, state.global_step + 1)


def trainer(folder: Path, callbacks: Any = (), **options: Any) -> Any:
    given: dict[str, Any] = {
        "num_train_epochs": paused.STEPS,
        "per_device_train_batch_size": 8,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_strategy": "no",
        **options,
    }
    made = transformers.Trainer(
        args=transformers.TrainingArguments(output_dir=str(folder), **given),
        model_init=model,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=list(callbacks),
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def objective(trial: Any) -> None:
    callbacks = [Log(trial), TransformersCallback(trial, steps="epochs")]
    made = trainer(trial.checkpoint_dir, callbacks, **trial.params)
    made.train(resume_from_checkpoint=checkpoint(trial.checkpoint_dir))


def test_a_paused_training_goes_on_as_if_it_was_not_paused(tmp_path: Path) -> None:
    result = paused.sweep(objective, SPACE, "minimize eval_loss", tmp_path / "store")
    resumed = paused.check(result, tmp_path / "store")
    whole = trainer(tmp_path / "whole", **resumed.params)
    whole.train()
    expected = whole.evaluate()["eval_loss"]
    assert resumed.reports[-1].metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)
