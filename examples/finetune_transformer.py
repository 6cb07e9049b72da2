"""Fine-tune a pretrained transformer with Hugging Face's Trainer.

The pretrained model is a tiny one that this script makes, so nothing is downloaded. For a real one,
give its name to `from_pretrained` and your texts to its tokenizer.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

import automl
from automl import Float, Int, Space
from automl.integrations.transformers import TransformersCallback, checkpoint

WORDS, LENGTH, LAYERS = 40, 12, 2
SPACE = Space(
    Float("learning_rate", 1e-5, 1e-1, log=True, default=5e-4, affects={"quality"}),
    Float("weight_decay", 1e-4, 0.3, log=True, default=0.01, affects={"quality"}),
    Float("warmup_steps", 0.0, 0.5, default=0.0, affects={"quality"}),
    Int("frozen", 0, LAYERS, default=0),  # how many layers keep their weights
)


def pretrain(folder: Path) -> None:
    """Write the pretrained model, unless it is there."""
    if folder.exists():
        return
    set_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    BertForSequenceClassification(config).save_pretrained(folder)


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts of word numbers; the label tells whether small numbers prevail."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    labels = (words < WORDS // 2).sum(1) > LENGTH // 2
    return [
        {"input_ids": ids, "labels": int(label)} for ids, label in zip(words, labels, strict=True)
    ]


def accuracy(predicted: Any) -> dict[str, float]:
    """Hugging Face calls it `eval_accuracy`."""
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def objective(trial: Any, pretrained: Path) -> None:
    """Train for four epochs; the callback reports each evaluation."""
    params = dict(trial.params)
    model = BertForSequenceClassification.from_pretrained(pretrained)
    for layer in model.bert.encoder.layer[: params.pop("frozen")]:
        layer.requires_grad_(False)
    arguments = TrainingArguments(
        str(trial.checkpoint_dir),
        num_train_epochs=4,
        per_device_train_batch_size=16,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=trial.seed % 2**31,
        **params,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=texts(400, 0),
        eval_dataset=texts(200, 1),
        compute_metrics=accuracy,
        callbacks=[TransformersCallback(trial)],
    )
    trainer.train(resume_from_checkpoint=checkpoint(trial.checkpoint_dir))


def main(trials: int = 12, dispatcher: str = "local") -> automl.Result:
    """Tune it; a paused trial goes on from the Trainer's checkpoint."""
    folder = Path("tiny-bert").absolute()
    pretrain(folder)
    result = automl.sweep(
        partial(objective, pretrained=folder),
        SPACE,
        "maximize eval_accuracy",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        stopper="asha",
        name="finetune",
        resume=True,
    )
    print(f"accuracy {result.best.value:.3f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    main(parser.parse_args().trials)
