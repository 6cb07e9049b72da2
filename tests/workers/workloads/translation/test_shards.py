"""A corpus prepared on disk: batches, bounded memory, clear errors, training and resuming."""

from __future__ import annotations

import json
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import DataError, UsageError
from workers.context import Context
from workers.protocol import Assignment, Ending
from workers.run import run
from workers.workloads.translation import Translation, shards
from workers.workloads.translation.builtin import splits
from workers.workloads.translation.shards import CorpusOptions, Counts, Shards
from workers.workloads.translation.text_pairs import AlignedFiles, TextCorpus

RECIPE = CorpusOptions(vocabulary_size=400, max_length=128, sample=2000, shard_pairs=1500)


def prepare(source: Path, target: Path, folder: Path, recipe: CorpusOptions) -> Counts:
    return shards.prepare(TextCorpus((AlignedFiles(source, target),)), folder, recipe)


def write(folder: Path, pairs: int, *, ending: str = "\n") -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    known = splits()["train"]
    chosen = [known[i % len(known)] for i in range(pairs)]
    paths = folder / "a.txt", folder / "b.txt"
    for path, lines in zip(paths, zip(*chosen, strict=True), strict=True):
        path.write_text("".join(line + ending for line in lines), encoding="utf-8", newline="")
    return paths


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    prepare(*write(folder, 6000), folder / "out", RECIPE)
    return folder / "out"


def test_every_pair_is_in_one_shard(prepared):
    corpus = Shards.open(prepared)
    vocabulary, found = corpus.vocabulary(), []
    for number in range(len(corpus.facts["shards"])):
        examples = corpus.examples(number)
        for rows in (examples.sources, examples.targets):
            assert len(rows.offsets) == corpus.facts["shards"][number] + 1
        found += vocabulary.decode(
            np.split(examples.targets.ids.tolist(), examples.targets.offsets[1:-1])
        )
    assert len(corpus.facts["shards"]) == 4
    expected = [target for _, target in splits()["train"][:5700]]
    assert sorted(found) == sorted(" ".join(line.split()) for line in expected)
    assert corpus.valid().targets == [target for _, target in splits()["train"][5700:6000]]


def test_batches_are_the_same_from_any_index_on(prepared):
    corpus = Shards.open(prepared)
    whole = list(corpus.batches(512, seed=3, epoch=1))
    for skip in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        rest = list(corpus.batches(512, 3, 1, skip))
        assert len(rest) == len(whole) - skip
        for batch, other in zip(rest, whole[skip:], strict=True):
            assert all(torch.equal(batch[key], other[key]) for key in batch)
    assert max(batch["labels"].numel() for batch in whole) <= 512
    seen = sum(len(batch["source"]) for batch in whole)
    assert seen == len(corpus)
    other = next(corpus.batches(512, 3, 2))
    assert other["source"].shape != whole[0]["source"].shape or not torch.equal(
        other["source"], whole[0]["source"]
    )


def peak_of(folder: Path, pairs: int) -> int:
    """Bytes of Python's objects at most, while a corpus is prepared and read."""
    shards._CHUNK = 500
    files = write(folder / str(pairs), pairs)
    out = folder / str(pairs) / "out"
    tracemalloc.start()
    prepare(*files, out, CorpusOptions(300, max_length=40, sample=1000, shard_pairs=1500))
    for _ in islice(Shards.open(out).batches(512, 0, 0), 300):
        pass
    return tracemalloc.get_traced_memory()[1]


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Eight times the pairs take no more at once, preparing or reading."""
    # In processes of their own: threads of other tests may import something meanwhile.
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        few, many = pool.map(peak_of, [tmp_path] * 2, (3000, 24_000))
    assert many < 1.3 * few + 200_000


def test_odd_pairs_are_skipped_and_counted(tmp_path):
    """An empty target, a line of 10,000 words, CR LF and LF mixed."""
    source, target = write(tmp_path, 1000)
    lines = [path.read_text().split("\n")[:-1] for path in (source, target)]
    lines[1][3] = "  "
    lines[0][5] = "word " * 10_000
    for path, texts in zip((source, target), lines, strict=True):
        path.write_bytes(
            "".join(t + ("\r\n" if i % 3 else "\n") for i, t in enumerate(texts)).encode()
        )
    counts = prepare(source, target, tmp_path / "out", RECIPE)
    assert (counts.empty, counts.too_long, counts.pairs, counts.valid) == (1, 1, 949, 49)
    assert Shards.open(tmp_path / "out").skipped == 2


def test_wrong_input(tmp_path, prepared):
    source, target = write(tmp_path, 100)
    with pytest.raises(UsageError, match="holds a prepared corpus already"):
        prepare(source, target, prepared, RECIPE)
    with pytest.raises(UsageError, match="is not an empty folder"):
        prepare(source, target, tmp_path, RECIPE)
    with pytest.raises(DataError, match="cannot be written"):
        prepare(source, target, Path("/proc/out"), RECIPE)
    target.write_text("one line\n")
    with pytest.raises(DataError, match=r"a\.txt has more lines than .*b\.txt, which has 1"):
        prepare(source, target, tmp_path / "out", RECIPE)
    source.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:1: not UTF-8"):
        prepare(source, target, tmp_path / "out", RECIPE)
    with pytest.raises(DataError, match="does not hold a corpus"):
        Translation.check({"name": "prepared", "dir": str(tmp_path)}, {})
    with pytest.raises(UsageError, match="shard_pairs must be at least 1"):
        CorpusOptions(shard_pairs=0)


@pytest.mark.parametrize("damage", ["lengths", "ids", "manifest", "vocabulary"])
def test_damage_is_named(tmp_path, damage):
    prepare(*write(tmp_path, 300), tmp_path / "out", RECIPE)
    corpus = Shards.open(tmp_path / "out")
    name = {"manifest": "prepared.json", "vocabulary": "vocabulary.model"}.get(
        damage, f"0000.source.{damage}"
    )
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=str(tmp_path / "out")):
        list(
            chain(
                Shards.open(corpus.folder).batches(512, 0, 0),
                [Shards.open(corpus.folder).vocabulary()],
            )
        )


def train(folder: Path, corpus: Path, updates: int, *, resume: bool = False) -> dict[int, float]:
    fixed = {
        "width": 32, "num_layers": 1, "num_heads": 4, "feed_forward_ratio": 2,
        "batch_tokens": 512, "dropout": 0.1, "learning_rate": 0.01, "warmup_updates": 5,
        "eval_sentences": 8, "evaluate_updates": 1, "max_updates": updates,
        "evaluate_seconds": None,
    }  # fmt: skip
    data, reports = {"name": "prepared", "dir": str(corpus)}, []
    folder.mkdir(exist_ok=True)
    outcome = run(
        Context(
            Assignment("s", 0, 1, {}, "translation", str(folder), data, fixed, resume=resume),
            reports.append,
        )
    )
    assert outcome.ending is Ending.COMPLETED, outcome.details.get("traceback")
    return {
        report.step: report.metrics["train_loss"]
        for report in reports
        if "train_loss" in report.metrics
    }


def test_training_goes_on_in_the_middle_of_an_epoch(prepared, tmp_path):
    whole = train(tmp_path / "whole", prepared, 8)
    train(tmp_path / "parts", prepared, 5)
    assert json.loads((prepared / "prepared.json").read_text())["pairs"] > 5 * 512 / 4
    rest = train(tmp_path / "parts", prepared, 8, resume=True)
    assert {step: rest[step] for step in (6, 7, 8)} == {step: whole[step] for step in (6, 7, 8)}
