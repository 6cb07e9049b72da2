"""Checkpoints: round trip, damage, what is kept."""

from __future__ import annotations

import json
import os

import pytest
import torch

from workers.training import checkpoint
from workers.training.checkpoint import Checkpoint


def made(value: float) -> Checkpoint:
    model = {"a.weight": torch.full((3, 4), value), "b": torch.tensor([1, 2])}
    optimizer = {"exp_avg": {"a.weight": torch.full((3, 4), 2 * value)}}
    optimizer["step"] = {"a.weight": torch.tensor(5.0)}
    return Checkpoint(model, optimizer, {"updates": int(value)})


def test_round_trip(tmp_path):
    saved = made(1.0)
    checkpoint.save(tmp_path, 1, saved)
    found = checkpoint.load(tmp_path)
    assert found.progress == saved.progress
    assert all(torch.equal(found.model[key], value) for key, value in saved.model.items())
    moments = saved.optimizer["exp_avg"]
    assert torch.equal(found.optimizer["exp_avg"]["a.weight"], moments["a.weight"])
    assert found.optimizer["step"]["a.weight"].shape == ()


def test_a_checkpoint_at_a_stop_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    def slow(path):
        raise AssertionError(f"waited for {path}")

    monkeypatch.setattr(os, "fsync", slow)
    checkpoint.save(tmp_path, 1, made(1.0), wait=False)
    assert checkpoint.load(tmp_path).progress == made(1.0).progress
    with pytest.raises(AssertionError, match="waited"):
        checkpoint.save(tmp_path, 2, made(2.0))


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for update in (5, 10, 20):
        checkpoint.save(tmp_path, update, made(update))
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["00000010", "00000020"]


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_skipped(tmp_path, file, harm):
    checkpoint.save(tmp_path, 1, made(1.0))
    path = checkpoint.save(tmp_path, 2, made(2.0)) / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = {"truncated": content[: len(content) // 2], "flipped": content}
    path.unlink() if harm == "missing" else path.write_bytes(damaged[harm])
    assert checkpoint.load(tmp_path).progress == {"updates": 1}


def test_no_sound_checkpoint_is_none(tmp_path):
    assert checkpoint.load(tmp_path) is None
    (checkpoint.save(tmp_path, 1, made(1.0)) / "manifest.json").write_text("[]")
    assert checkpoint.load(tmp_path) is None


def test_an_unfinished_checkpoint_does_not_count(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, made(1.0))
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path, 2, made(2.0))
    assert checkpoint.load(tmp_path).progress == {"updates": 1}


@pytest.mark.parametrize("name", ["../model.safetensors", "model.safetensors.other", "other"])
def test_a_manifest_names_only_the_files_of_a_checkpoint(tmp_path, name):
    path = checkpoint.save(tmp_path, 1, made(1.0)) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"]["model.safetensors"]
    path.write_text(json.dumps(manifest))
    assert checkpoint.load(tmp_path) is None
