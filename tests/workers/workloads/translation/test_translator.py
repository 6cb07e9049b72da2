"""Other forms of an exported model translate as the model does."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from search_spaces.errors import DataError
from workers.__main__ import main
from workers.workloads.translation import attention_layouts
from workers.workloads.translation.translator import Translator
from workers.workloads.translation.vocabulary import save


@pytest.fixture
def folder(build, vocabulary, tmp_path) -> Path:
    """An exported model whose next tokens differ clearly."""
    model, target = build(tied=False, layout="interleaved"), tmp_path / "model"
    target.mkdir()
    with torch.no_grad():
        model.projection.weight.normal_(std=0.6, generator=torch.Generator().manual_seed(0))
    tensors = attention_layouts.canonical(
        model.state_dict(), "interleaved", model.architecture.head_dim
    )
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        target / "model.safetensors",
    )
    save(vocabulary, target / "vocabulary.model")
    (target / "architecture.json").write_text(json.dumps(dataclasses.asdict(model.architecture)))
    return target


@pytest.mark.parametrize("damage", ["weights", "vocabulary", "architecture", "none"])
def test_a_damaged_folder_is_named(folder, vocabulary, capsys, damage):
    if damage == "weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    if damage == "vocabulary":
        from workers.workloads.translation.vocabulary import train

        save(train(["a b c d", "e f g h"], 20), folder / "vocabulary.model")
    if damage == "architecture":
        (folder / "architecture.json").write_text("{}")
    if damage == "none":
        Translator.load(folder)
        return
    with pytest.raises(DataError, match=str(folder)):
        Translator.load(folder)
    assert main(["translation", "translate", "--model", str(folder)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_references_are_compared_with_what_is_translated(
    folder, corpus, tmp_path, capsys, monkeypatch
):
    options = ["translation", "translate", "--model", str(folder), "--beam", "1"]

    def run(*more: str) -> tuple[int, str, str]:
        text = "".join(line + "\n" for line in corpus.sources[:5]).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return (main([*options, *more]), *capsys.readouterr())

    _, translated, _ = run()
    reference = tmp_path / "reference.txt"
    reference.write_text(translated)
    assert run("--reference", str(reference))[:2] == (0, "BLEU 100.00\n")
    reference.write_text("one line\n")
    status, _, error = run("--reference", str(reference))
    assert status == 2
    assert "standard input has 5 lines" in error
    assert run("--reference", str(tmp_path / "absent"))[0] == 2
