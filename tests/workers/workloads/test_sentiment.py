from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import DataError
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads.sentiment import Sentiment, data
from workers.workloads.sentiment.model import SentimentModel, SentimentModelOptions, linear_scan

REVIEWS = {
    "train/pos/0_9.txt": "Good<br />good, GOOD film",
    "train/neg/0_2.txt": "Don't. Bad film",
    "test/pos/0_8.txt": "new film",
}


def write(root: Path) -> Path:
    for name, text in REVIEWS.items():
        (root / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "aclImdb" / name).write_text(text)
    return root / "aclImdb"


@pytest.mark.parametrize("archive", [False, True])
def test_reads_acl_imdb(tmp_path: Path, archive: bool) -> None:
    folder = write(tmp_path)
    if archive:
        with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as tar:
            tar.add(folder, folder.name)
        shutil.rmtree(folder)
    corpus = data.load({"name": "imdb", "dir": str(tmp_path)})
    assert corpus.vocabulary[:4] == ("<pad>", "<unknown>", "good", "film")
    assert set(corpus.vocabulary[4:]) == {"don't", "bad"}
    assert corpus.train.labels.sum() == 1
    positive = np.array([corpus.train.labels.argmax()])
    assert corpus.train.padded(positive, 6, 100).tolist() == [[0, 0, 2, 2, 2, 3]]
    assert corpus.train.padded(positive, 2, 3).tolist() == [[2, data.UNKNOWN]]
    assert corpus.test.padded(np.array([0]), 3, 100).tolist() == [[0, data.UNKNOWN, 3]]


def test_bad_utf8_and_missing_splits(tmp_path: Path) -> None:
    section = {"name": "imdb", "dir": str(tmp_path)}
    (write(tmp_path) / "train/pos/1_9.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"train/pos/1_9\.txt is not UTF-8"):
        data.load(section)
    shutil.rmtree(tmp_path / "aclImdb" / "train")
    with pytest.raises(DataError, match="aclImdb/train"):
        data.load(section)


def test_scan_is_the_recurrence_and_differentiable_twice() -> None:
    torch.manual_seed(0)
    a, b = (draw(11, 3).double().requires_grad_() for draw in (torch.rand, torch.randn))
    product = a.cumprod(0)
    expected = product * (b / product).cumsum(0)
    torch.testing.assert_close(linear_scan(a, b), expected)
    assert torch.autograd.gradcheck(linear_scan, (a, b))
    assert torch.autograd.gradgradcheck(linear_scan, (a, b))


@pytest.mark.parametrize("cell", ["gru", "lstm", "qrnn"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layouts_compute_the_same(cell: str, bidirectional: bool) -> None:
    results = []
    words = torch.randint(2, 50, (5, 9), generator=torch.Generator().manual_seed(0))
    words[1, :4] = 0
    for layout in ("batch_major", "time_major"):
        torch.manual_seed(0)
        options = SentimentModelOptions(50, 6, 7, 2, cell, bidirectional, "last", 0.0, layout)
        model = SentimentModel(options)
        model(words).square().sum().backward()
        results.append((model(words), {n: p.grad for n, p in model.named_parameters()}))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_fused_kernels_are_trained_in_fp16(cell: str) -> None:
    # On a CPU that computes fp16 itself, oneDNN refuses to train an LSTM in it.
    words = torch.randint(2, 50, (5, 9), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = SentimentModel(SentimentModelOptions(50, 6, 7, 2, cell, True, "last", 0.0))
    expected = model(words).square().sum()
    with torch.autocast("cpu", torch.half):
        found = model(words).float().square().sum()
    found.backward()
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_does_not_count_in_pooling(pooling: str) -> None:
    model = SentimentModel(SentimentModelOptions(20, 4, 5, pooling=pooling))
    states = torch.randn(6, 2, 5)
    words = torch.tensor([[0, 0, 0, 3, 4, 5], [2, 3, 4, 5, 6, 7]])
    pooled = model._pool(states, words)
    expected = states[3:, 0].mean(0) if pooling == "mean" else states[3:, 0].amax(0)
    torch.testing.assert_close(pooled[0], expected)


def test_bucketed_batches_hold_every_review_once_in_fewer_words() -> None:
    fixed = {"validation": 0.0, "length": 60, "batch_size": 16}
    padded, bucketed = (
        Sentiment({}, {"train": 300, "test": 10}, {**fixed, "batching": how})
        for how in ("padded", "bucketed")
    )
    assert sorted(np.concatenate(list(bucketed.epoch_batches(0)))) == list(range(300))
    words = [[batch["words"] for batch in w.train_batches(0)] for w in (padded, bucketed)]
    every, few = (sum(batch.numel() for batch in batches) for batches in words)
    assert few < 0.85 * every
    real, same = (sum(int((batch > 0).sum()) for batch in batches) for batches in words)
    assert real == same


def test_the_export_of_a_bucketed_training_takes_reviews_of_full_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[tuple[torch.Tensor, ...]] = []
    monkeypatch.setattr(
        "workers.export.to_onnx", lambda model, inputs, path: exported.append(inputs) or {}
    )
    fixed = {**Sentiment.smallest["fixed"], "max_epochs": 1, "length": 60, "batching": "bucketed"}
    section = {"train": 40, "test": 10}
    one = Assignment("s", 0, 1, {}, "sentiment", str(tmp_path), section, fixed)
    assert run(Context(one)).failure is None
    Sentiment({}, section, fixed).export(tmp_path, tmp_path)
    assert [words.shape for (words,) in exported] == [(2, 60)]
