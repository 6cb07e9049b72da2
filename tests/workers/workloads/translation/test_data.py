"""Corpora: the built-in one, folders and all that can be wrong with files, several languages."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import DataError
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads.translation import Translation, builtin, data
from workers.workloads.translation.batches import prepare
from workers.workloads.translation.evaluation import combine

CHECKSUM = "32339306ccf36afd84a73ed1452c941afa7da7c5314f93b87c3bc8e446ee6976"
WORDS = {
    "en": ("a dog runs", "a cat sleeps", "the bird sings"),
    "de": ("ein Hund rennt", "eine Katze schläft", "der Vogel singt"),
    "fr": ("un chien court", "un chat dort", "l'oiseau chante"),
}


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pair(tmp_path: Path, source: bytes | str, target: bytes | str) -> dict[str, str]:
    for split in ("train", "valid"):
        write(tmp_path / f"{split}.en", source)
        write(tmp_path / f"{split}.de", target)
    return {"name": "parallel", "dir": str(tmp_path)}


def test_the_built_in_corpus_is_the_same_everywhere():
    sizes = {name: len(set(pairs)) for name, pairs in builtin.splits().items()}
    assert sizes == {"train": 28_000, "valid": 1_000, "test": 1_000}
    text = "\n".join("\t".join(pair) for pair in builtin.pairs())
    assert hashlib.sha256(text.encode()).hexdigest() == CHECKSUM


def test_multi30k(data_dir):
    section = {"name": "multi30k", "dir": str(data_dir / "multi30k")}
    splits = data.load(section)
    assert (len(splits.train), len(splits.valid)) == (29_000, 1_014)
    assert splits.train.sources[0].startswith("Two young, White males")
    french = data.load({**section, "target_language": "fr"})
    assert french.train.targets[0] != splits.train.targets[0]


def test_plain_and_gzipped_files_are_the_same(tmp_path):
    for split in ("train", "val"):
        write(tmp_path / f"{split}.en", "A dog.\r\nA cat.\r\n")
        write(tmp_path / f"{split}.de.gz", gzip.compress(b"Ein Hund.\nEine Katze."))
    splits = data.load({"name": "multi30k", "dir": str(tmp_path)})
    assert list(splits.train.sources) == ["A dog.", "A cat."]
    assert list(splits.valid.targets) == ["Ein Hund.", "Eine Katze."]


def test_white_space_and_odd_line_breaks_within_a_line(tmp_path):
    splits = data.load(pair(tmp_path, "\ufeffa\u2028b \r\n c\x0bd\rd\t\ne\n", "x\ny\nz\n"))
    assert splits.train.sources == ["a b", "c d d", "e"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "x\ny\n", r"train\.en and .*train\.de .* 3 and 2"),
        ("a\n\nc\n", "x\ny\nz\n", r"train\.en:2: the line is empty"),
        ("a\nb\n", "x\n \t\n\n", r"train\.de:2: the line is empty|same number of lines"),
        (b"a\nb\xff\n", "x\ny\n", r"train\.en:2: not UTF-8: byte 0xff at position 1"),
        ("a\nb\n", b"x\ny\xc3\n", r"train\.de:2: not UTF-8"),
        ("", "", r"train\.en:1: the line is empty"),
    ],
)
def test_malformed_pairs(tmp_path, source, target, message):
    with pytest.raises(DataError, match=message):
        data.check(pair(tmp_path, source, target))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "bultin"}, "did you mean 'builtin'"),
        ({"name": "multi30k"}, "needs data.dir"),
        ({"name": "multi30k", "dir": "/no/such"}, "does not exist"),
        ({"name": "multi30k", "dir": "."}, r"neither train\.en nor train\.en\.gz"),
        ({"name": "builtin", "folder": "x"}, "takes no key 'folder'"),
    ],
)
def test_wrong_sections(section, message):
    with pytest.raises(DataError, match=message):
        data.check(section)


@pytest.mark.parametrize("cut", [3, -9])
def test_a_damaged_gzip_file_is_named(tmp_path, cut):
    write(tmp_path / "train.en.gz", gzip.compress(b"a b c\n" * 100)[:cut])
    write(tmp_path / "train.de", "a\n")
    with pytest.raises(DataError, match=r"train\.en\.gz: cannot be read"):
        data.check({"name": "parallel", "dir": str(tmp_path)})


@pytest.fixture
def section(tmp_path: Path) -> dict[str, Any]:
    for split, count in (("train", 40), ("val", 3)):
        for language, lines in WORDS.items():
            text = "".join(f"{lines[i % 3]} {i}\n" for i in range(count))
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return {"name": "parallel", "dir": str(tmp_path), "pairs": ["en-de", "en-fr", "de-en"]}


def test_a_tag_names_the_target_and_pairs_take_turns(section: dict[str, Any]) -> None:
    splits = data.load(section)
    assert splits.valid.sources[:4] == [
        "<2de> a dog runs 0",
        "<2fr> a dog runs 0",
        "<2en> ein Hund rennt 0",
        "<2de> a cat sleeps 1",
    ]
    assert splits.valid.targets[:3] == ["ein Hund rennt 0", "un chien court 0", "a dog runs 0"]
    assert (len(splits.train), len(splits.valid)) == (120, 9)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_a_tag_is_one_entry_of_the_vocabulary(section: dict[str, Any], kind: str) -> None:
    vocabulary = prepare(section, 120, 40, kind=kind).vocabulary
    ids = vocabulary.encode([f"<2{name}> a dog" for name in WORDS])
    for name, row in zip(WORDS, ids, strict=True):
        assert f"<2{name}>" in [vocabulary.piece(i).lstrip("▁") for i in row]
        assert vocabulary.decode([row])[0].endswith("a dog")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pairs": "en-de"},
            r"such as \[en-de, de-en\], got 'en-de'",
        ),
        ({"pairs": []}, "a list of different language pairs"),
        ({"pairs": ["en de"]}, "a list of different language pairs"),
        ({"pairs": ["en-de", "en-de"]}, "a list of different language pairs"),
        ({"pairs": ["en-en"]}, "must differ, both are 'en'"),
        ({"target_language": "fr"}, "leave out source_ and target_language"),
        ({"pairs": ["en-it"]}, r"train\.it"),
    ],
)
def test_a_wrong_section_is_refused(
    section: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        data.check({**section, **change})


def test_a_model_of_several_pairs_trains_and_is_judged(
    section: dict[str, Any], tmp_path: Path
) -> None:
    fixed = {**Translation.smallest["fixed"], "vocabulary_size": 120, "max_updates": 3}
    attempt = Assignment("s", 0, 1, {}, "translation", str(tmp_path / "trial"), section, fixed)
    outcome = run(Context(attempt))
    assert outcome.failure is None, outcome.details["traceback"]
    by_pair = {name for name in outcome.metrics if name.startswith("bleu_")}
    assert by_pair == {"bleu_en_de", "bleu_en_fr", "bleu_de_en"}
    declared = {metric.name: metric.direction for metric in Translation.metrics_on(section)}
    assert outcome.metrics.keys() <= declared.keys()
    assert {declared[name] for name in by_pair} == {"maximize"}
    assert Translation.metrics_on({}) == Translation.metrics


def test_each_pair_is_scored_on_its_own_sentences(section: dict[str, Any]) -> None:
    corpus = prepare(section, 120, 40)
    references = list(corpus.splits.valid.targets)
    shown = [text if text.startswith("un") else "nothing at all" for text in references]
    shares = [{"hypotheses": shown[index::2], "loss": 1.0, "tokens": 1.0} for index in range(2)]
    found = combine(shares, corpus)
    assert found.metrics["bleu_en_de"] == found.metrics["bleu_de_en"] == 0.0
    assert found.metrics["bleu_en_fr"] > 60
    assert 0 < found.metrics["bleu"] < found.metrics["bleu_en_fr"]
