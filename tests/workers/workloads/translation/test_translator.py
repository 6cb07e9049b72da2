"""Other forms of an exported model translate as the model does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from search_spaces.errors import DataError, UsageError
from workers.__main__ import main
from workers.workloads.translation import attention_layouts
from workers.workloads.translation.beam_search import SearchOptions
from workers.workloads.translation.shortlist import Shortlist
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


@pytest.fixture
def listed(folder, examples) -> Path:
    """The same with a shortlist."""
    Shortlist.learn(examples, 600).save(folder)
    return folder


def share(found, expected):
    return sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)


def convert(model: Path, target: Path) -> int:
    """Convert an exported model on the command line; the exit status."""
    options = ["--model", str(model), "--to", "ctranslate2", "--out", str(target)]
    return main(["translation", "convert", *options])


def test_ctranslate2_translates_the_same(folder, corpus, tmp_path):
    pytest.importorskip("ctranslate2")
    from workers.workloads.translation import ct2

    lines = ["", *corpus.sources[:20]]
    search = SearchOptions(1, max_ratio=0.0, max_extra=12, batch=8)
    expected = Translator.load(folder).translate(lines, search)
    ct2.convert(folder, tmp_path / "exact", None)
    assert ct2.Engine(tmp_path / "exact").translate(lines, search) == expected
    assert convert(folder, tmp_path / "int8") == 0
    assert share(ct2.Engine(tmp_path / "int8").translate(lines, search), expected) > 0.5


@pytest.mark.parametrize(("form", "least"), [("int8", 0.5), ("bf16", 0.8)])
def test_a_quantised_model_translates_nearly_the_same(folder, corpus, form, least):
    lines, search = (
        list(corpus.sources[:20]),
        SearchOptions(1, max_ratio=0.0, max_extra=12, batch=8),
    )
    exact, quantised = Translator.load(folder), Translator.load(folder, form)
    assert share(quantised.translate(lines, search), exact.translate(lines, search)) > least


def test_a_shortlist_is_kept_to_in_every_form(listed, corpus, tmp_path):
    pytest.importorskip("ctranslate2")
    from workers.workloads.translation import ct2

    lines = list(corpus.sources[:20])
    search = SearchOptions(1, max_ratio=0.0, max_extra=12, batch=8)
    plain, short = Translator.load(listed), Translator.load(listed, shortlist=4)
    expected = short.translate(lines, search)
    assert expected != plain.translate(lines, search)
    ct2.convert(listed, tmp_path / "ct2", None, shortlist=4)
    assert share(ct2.Engine(tmp_path / "ct2").translate(lines, search), expected) > 0.8
    assert share(Translator.load(listed, "int8", 4).translate(lines, search), expected) > 0.2


def test_a_shortlist_of_another_vocabulary_is_refused(listed, capsys):
    Shortlist(torch.zeros(50, 3, dtype=torch.int32), torch.tensor([7], dtype=torch.int32)).save(
        listed
    )
    assert main(["translation", "translate", "--model", str(listed), "--shortlist", "3"]) == 2
    assert "does not fit the model's vocabulary" in capsys.readouterr().err
    (listed / "shortlist.safetensors").unlink()
    assert main(["translation", "translate", "--model", str(listed), "--shortlist", "3"]) == 2
    assert "has no shortlist" in capsys.readouterr().err


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


def test_a_form_is_not_written_over_what_is_there(folder):
    assert convert(folder, folder) == 2
    assert issubclass(DataError, UsageError)
