"""`automl init -- COMMAND`: a space around the numbers of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config import load
from automl.config.template import file_of, for_command
from automl.errors import ConfigError
from search_spaces import Float, Int
from workers.command.printed_metrics import printed_metrics


def test_the_numbers_of_a_command_become_parameters(tmp_path: Path) -> None:
    arguments = "python train.py --lr 0.001 --width=64 --layers 3 --dropout 0.1 --epochs 30 "
    arguments += "--seed 1 --optimizer adam model.depth=12 {x} --weight-decay 1e-4"
    text, line = for_command(arguments.split(), "train.yaml")
    assert line == (
        "python train.py --lr {lr} --width={width} --layers {layers} --dropout {dropout} "
        "--epochs 30 --seed {seed} --optimizer adam model.depth={model.depth} {{x}} "
        "--weight-decay {weight_decay}"
    )
    (tmp_path / "train.yaml").write_text(text)
    spec = load(tmp_path / "train.yaml", command=f"-- {line}").spec
    with pytest.raises(ConfigError, match=r"write space.epochs: \[50\], or give it to the program"):
        load(tmp_path / "train.yaml", ["fixed.epochs=50"], command=f"-- {line}")
    assert spec.max_steps == 30
    assert dict(spec.space.parameters) == {
        "lr": Float("lr", 1e-4, 1e-2, log=True, default=1e-3),
        "width": Int("width", 16, 256, log=True, default=64),
        "layers": Int("layers", 1, 12, default=3),
        "dropout": Float("dropout", 0.0, 0.99, default=0.1),
        "model.depth": Int("model.depth", 3, 48, log=True, default=12),
        "weight_decay": Float("weight_decay", 1e-5, 1e-3, log=True, default=1e-4),
    }
    assert spec.resumable
    assert "This is a guess" in text
    assert "# not tuned: optimizer 'adam'\n" in text
    assert "to tune one, write NAME: [VALUE, ...] here, and {NAME} in the command\n" in text
    quiet = for_command(["train", "--amp", "--lr", "1", "--verbose"], "t.yaml")[0]
    assert "not tuned" not in quiet, "a flag has no value"
    launched = ["torchrun", "--nproc-per-node", "4", "train.py", "--lr", "0.1"]
    assert for_command(launched, "t.yaml")[1].endswith("--nproc-per-node 4 train.py --lr {lr}")


def test_rates_are_real_and_nothing_is_dropped_in_silence(tmp_path: Path) -> None:
    words = "train --lr 20 --l2 0.0 --warmup 0 --clip 1 --sample-rate 16000 --seed 3"
    arguments = words.split()
    metric = printed_metrics(["epoch 1 valid loss 0.5"])[0]
    text, line = for_command(arguments, "t.yaml", metric)
    (tmp_path / "t.yaml").write_text(text)
    spec = load(tmp_path / "t.yaml", command=f"-- {line}").spec
    assert dict(spec.space.parameters) == {
        "lr": Float("lr", 2.0, 200.0, log=True, default=20.0),
        "clip": Float("clip", 0.1, 10.0, log=True, default=1.0),
        "sample_rate": Int("sample_rate", 4000, 64000, log=True, default=16000),
    }
    assert "# not tuned: l2 0.0, warmup 0\n" in text
    assert "--warmup 0" in line
    assert [str(goal) for goal in spec.goals] == ["minimize valid_loss"]
    assert "Found in: epoch 1 valid loss 0.5" in text


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("python train.py --lr 1", "train.yaml"),
        ("./bin/fit", "fit.yaml"),
        ("python -m some.train lr=1", "some.yaml"),
        ("./.x --lr 1", "sweep.yaml"),
    ],
)
def test_the_file_is_named_after_the_script(line: str, file: str) -> None:
    assert file_of(line.split()) == file
