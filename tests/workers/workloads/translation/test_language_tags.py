"""One model of several language pairs: the tags, the mixture, and the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import DataError
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads.translation import Translation, data
from workers.workloads.translation.evaluation import combine
from workers.workloads.translation.prepare import prepare

WORDS = {
    "en": ("a dog runs", "a cat sleeps", "the bird sings"),
    "de": ("ein Hund rennt", "eine Katze schläft", "der Vogel singt"),
    "fr": ("un chien court", "un chat dort", "l'oiseau chante"),
}


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
    for name in ("<2de>", "<2fr>", "<2en>"):
        (ids,) = vocabulary.encode([f"{name} a dog"])
        assert name in [vocabulary.piece(i).lstrip("▁") for i in ids]
        assert vocabulary.decode([ids])[0].endswith("a dog")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": "en-de"}, r"a list of language pairs such as \[en-de, de-en\], got 'en-de'"),
        ({"pairs": []}, "a list of language pairs"),
        ({"pairs": ["en de"]}, "a list of language pairs"),
        ({"pairs": ["en-de", "en-de"]}, "has en-de twice"),
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
    fixed = {
        "vocabulary_size": 120,
        "width": 16,
        "num_layers": 1,
        "num_heads": 2,
        "max_length": 40,
        "max_updates": 3,
        "eval_sentences": 6,
    }
    folder = tmp_path / "trial"
    attempt = Assignment("s", 0, 1, {}, "translation", str(folder), section, fixed)
    outcome = run(Context(attempt))
    assert outcome.failure is None, outcome.details["traceback"]
    references = (folder / "references.valid.txt").read_text(encoding="utf-8").splitlines()
    assert references[:3] == ["ein Hund rennt 0", "un chien court 0", "a dog runs 0"]
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
    few = [{"hypotheses": shown[:1], "loss": 1.0, "tokens": 1.0}]
    by_pair = {name for name in combine(few, corpus).metrics if name.startswith("bleu_")}
    assert by_pair == {"bleu_en_de"}, "of what was translated"
