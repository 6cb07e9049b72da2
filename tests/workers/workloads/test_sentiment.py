from __future__ import annotations

import io
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


def write_folder(root: Path) -> Path:
    for name, text in REVIEWS.items():
        (root / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "aclImdb" / name).write_text(text)
    return root


def write_archive(root: Path) -> Path:
    with tarfile.open(root / "aclImdb_v1.tar.gz", "w:gz") as tar:
        for name, text in REVIEWS.items():
            info = tarfile.TarInfo(f"aclImdb/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return root


@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_reads_acl_imdb(tmp_path: Path, write: object) -> None:
    corpus = data.load({"name": "imdb", "dir": str(write(tmp_path))})  # type: ignore[operator]
    assert corpus.vocabulary[:4] == ("<pad>", "<unknown>", "good", "film")
    assert set(corpus.vocabulary[4:]) == {"don't", "bad"}
    assert corpus.train.labels.sum() == 1
    positive = int(corpus.train.labels.argmax())
    assert corpus.train.padded(np.array([positive]), 6, 100).tolist() == [[0, 0, 2, 2, 2, 3]]
    assert corpus.train.padded(np.array([positive]), 2, 3).tolist() == [[2, data.UNKNOWN]]
    assert corpus.test.padded(np.array([0]), 3, 100).tolist() == [[0, data.UNKNOWN, 3]]


def test_bad_utf8_and_missing_splits(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "aclImdb/train/pos/1_9.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"train/pos/1_9\.txt is not UTF-8"):
        data.load({"name": "imdb", "dir": str(tmp_path)})
    other = tmp_path / "other"
    (other / "aclImdb/train/pos").mkdir(parents=True)
    with pytest.raises(DataError, match="aclImdb/train"):
        data.load({"name": "imdb", "dir": str(other)})


@pytest.mark.parametrize(
    "section", [{"name": "imbd"}, {"name": "imdb"}, {"name": "imdb", "dir": "/nowhere"}]
)
def test_check(section: dict[str, str]) -> None:
    with pytest.raises(DataError):
        Sentiment.check(section, {})


def test_scan_is_the_recurrence_and_differentiable_twice() -> None:
    torch.manual_seed(0)
    a, b = (
        torch.rand(11, 3, dtype=torch.double, requires_grad=True),
        torch.randn(11, 3, dtype=torch.double, requires_grad=True),
    )
    h, expected = torch.zeros(3, dtype=torch.double), []
    for factor, term in zip(a, b, strict=True):
        h = factor * h + term
        expected.append(h)
    torch.testing.assert_close(linear_scan(a, b), torch.stack(expected))
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
    (first, expected), (output, gradients) = results
    torch.testing.assert_close(output, first, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_fused_kernels_are_trained_in_fp16(cell: str) -> None:
    """On a CPU that computes fp16 itself, oneDNN refuses to train an LSTM in it."""
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
    section = {"train": 300, "test": 10}
    padded, bucketed = (
        Sentiment({}, section, {**fixed, "batching": b}) for b in ("padded", "bucketed")
    )
    rows = np.concatenate(list(bucketed.epoch_batches(0)))
    assert sorted(rows) == list(range(300))
    count = {w: sum(b["words"].numel() for b in w.train_batches(0)) for w in (padded, bucketed)}
    assert count[bucketed] < 0.85 * count[padded]
    real = {
        w: sum(int((b["words"] > 0).sum()) for b in w.train_batches(0)) for w in (padded, bucketed)
    }
    assert real[bucketed] == real[padded]


def test_the_export_of_a_bucketed_training_takes_reviews_of_full_length(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    fixed = {**Sentiment.smallest["fixed"], "max_epochs": 1, "length": 60, "batching": "bucketed"}
    one = Assignment(
        "s", 0, 1, {}, "sentiment", str(tmp_path / "trial"), {"train": 40, "test": 10}, fixed
    )
    assert run(Context(one)).failure is None
    (tmp_path / "model").mkdir()
    Sentiment({}, one.data, fixed).export(tmp_path / "trial", tmp_path / "model")
    session = onnxruntime.InferenceSession(str(tmp_path / "model" / "model.onnx"))
    assert session.get_inputs()[0].shape[1] == 60
