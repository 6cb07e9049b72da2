"""`trial.save` and `trial.restore`: what comes back, what is refused, and damage."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from search_spaces.errors import UsageError
from workers.context import Context
from workers.protocol import Assignment


def context(folder: Path, attempt: int = 1) -> Context:
    return Context(Assignment("s", 0, attempt, {}, None, str(folder), resume=attempt > 1))


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    tied = torch.arange(6.0).reshape(2, 3)
    state = {
        "plain": [None, True, 3, 2.5, math.nan, "text", (1, (2, [])), {}],
        "keys": {0: "int", (1, "a"): "tuple", None: "none", 1.5: "float", "a.b": 1, "a": {"b": 2}},
        "tensors": {
            "tied": [tied, tied, tied.t()],
            "half": tied.bfloat16(),
            "scalar": torch.tensor(7),
            "empty": torch.zeros(0, 3),
            "trained": nn.Parameter(tied.clone()).detach(),
        },
        "arrays": [np.arange(3), np.float32(1.5), np.ones((2, 2), order="F"), np.zeros(())],
        "random": np.random.RandomState(3).get_state(),
        "a.b": {"c": torch.ones(1)},
        "a": {"b.c": torch.zeros(1)},
        "tensor": "a key that is a mark of the format too",
    }
    context(tmp_path).save(state)
    found = context(tmp_path, 2).restore()
    assert repr(found) == repr(state)  # with types and values, whatever equals what
    assert found["tensors"]["half"].dtype == torch.bfloat16


def test_there_is_none_before_the_first_and_the_newest_counts(tmp_path: Path) -> None:
    trial = context(tmp_path)
    assert trial.restore() is None
    for epoch in range(12):
        trial.save({"epoch": epoch})
    assert (trial.restore(), trial.resumed) == ({"epoch": 11}, False)
    kept = {path.name for path in (trial.checkpoint_dir / "saved").iterdir()}
    assert kept == {"00000011", "00000012"}


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
def test_of_a_damaged_state_the_one_before_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, harm: str
) -> None:
    trial = context(tmp_path)
    for epoch in (1, 2):
        trial.save({"epoch": epoch, "weights": np.full(9, epoch)})
    path = trial.checkpoint_dir / "saved" / "00000002" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x04
    damaged = {"truncated": content[: len(content) // 2], "flipped": content}
    path.unlink() if harm == "missing" else path.write_bytes(damaged[harm])
    later = context(tmp_path, 2)
    assert later.restore()["epoch"] == 1
    assert later.details["damaged_checkpoints"] == [str(path.parent)]
    assert "00000002 is damaged: the one before is used" in capsys.readouterr().err
    later.save({"epoch": 3})
    assert later.restore() == {"epoch": 3}


def test_a_state_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = context(tmp_path)
    trial.save({"epoch": 1})

    def full(file: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        trial.save({"epoch": 2})
    assert trial.restore() == {"epoch": 1}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"model": {"w": object()}}, "got object at 'model.w'"),
        ({"a": np.array(["text"])}, "got ndarray of <U4 at 'a'"),
        ({"a": [{1}]}, "got set at 'a.0'"),
        (lambda: None, "got function at 'its top'"),
        (torch.ones(1, dtype=torch.complex128), "got Tensor of torch.complex128"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, state: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        context(tmp_path).save(state)


def test_arrays_of_numpy_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from workers.context import Context\n"
        "from workers.protocol import Assignment\n"
        f"trial = Context(Assignment('s', 0, 1, {{}}, None, {str(tmp_path)!r}))\n"
        "trial.save({'weights': np.arange(3.0), 'epoch': 1})\n"
        "assert trial.restore()['weights'].sum() == 3.0\n"
        "assert 'torch' not in sys.modules, 'imports torch'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
