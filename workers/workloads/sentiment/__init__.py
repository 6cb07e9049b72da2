"""Sentiment classification of film reviews by recurrent networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from search_spaces import Choice, Float, Int, Parameter
from search_spaces.hardware import Hardware
from workers.batches import Batch
from workers.workload import ParallelPlan
from workers.workloads._classifier import SCHEDULES, Classifier
from workers.workloads._declarative_workload import IntArray, Options

if TYPE_CHECKING:
    import torch

__all__ = ["Sentiment"]

_BUCKET_BATCHES = 50  # number of batches whose reviews are sorted together by length
_LENGTH_STEP = 8  # lengths of bucketed batches are multiples of this, for fewer shapes


class Sentiment(Classifier):
    """GRU, LSTM or QRNN over the words of a review.

    Trial 0 is the published setting of the comparison of deep-learning frameworks
    (https://github.com/ilkarman/DeepLearningFrameworks): a GRU of 100 units over 150 words from a
    vocabulary of 30,000 in 125 dimensions, dropout 0.2, Adam at 0.001, batches of 64, 3 epochs;
    about 86% test accuracy on aclImdb.
    """

    name = "sentiment"
    summary = "film reviews, good or bad: GRU, LSTM or QRNN (IMDB, or generated)"
    goals = ("maximize accuracy",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **Classifier.defaults,
        "max_epochs": 3,
        "batch_size": 64,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "vocabulary": 30_000,
        "length": 150,
        "embedding_size": 125,
        "hidden_size": 100,
        "num_layers": 1,
        "cell": "gru",
        "bidirectional": False,
        "pooling": "last",
        "dropout": 0.2,
        "layout": "batch_major",
        "batching": "padded",
    }
    reads: ClassVar[tuple[str, ...]] = ("sparse_gradients",)
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {"train": 160, "test": 40},
        "fixed": {
            "max_epochs": 2,
            "length": 24,
            "vocabulary": 200,
            "embedding_size": 8,
            "hidden_size": 8,
        },
    }

    @classmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """See `DeclarativeWorkload`."""
        quality = {"quality"}
        cost = {"speed", "memory"}
        return [
            Float("learning_rate", 1e-4, 1e-2, log=True, default=1e-3, affects=quality),
            Choice("rate_schedule", list(SCHEDULES), default="constant", affects=quality),
            Int("vocabulary", 5_000, 40_000, log=True, default=30_000),
            Choice("length", [100, 150, 200, 300, 400], ordered=True, default=150),
            Choice("embedding_size", [32, 64, 125, 200], ordered=True, default=125),
            Choice("hidden_size", [50, 100, 150, 200], ordered=True, default=100),
            Choice("num_layers", [1, 2], ordered=True, default=1),
            Choice("cell", ["gru", "lstm", "qrnn"], default="gru"),
            Choice("bidirectional", [False, True], default=False),
            Choice("pooling", ["last", "mean", "max"], default="last", affects=quality),
            Float("dropout", 0.0, 0.6, default=0.2, affects=quality),
            Float("label_smoothing", 0.0, 0.2, default=0.0, affects=quality),
            Choice("layout", ["batch_major", "time_major"], default="batch_major", affects=cost),
            Choice("batching", ["padded", "bucketed"], default="padded"),
        ]

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """See `DeclarativeWorkload`."""
        tuned = ["matmul_precision", "loader_workers", "prefetch"]
        return {
            "precision": {},
            "batch": {"unit": "items"},
            "parallelism": {"plan": ("embeddings",)},
            "runtime": {"tune": tuned},
        }

    def build_model(self) -> torch.nn.Module:
        """See `Trainable`."""
        import torch

        from .model import SentimentModel, SentimentModelOptions

        torch.manual_seed(self.seed)
        return SentimentModel(self.options(SentimentModelOptions))

    def plan(self, model: torch.nn.Module) -> ParallelPlan:
        """The embedding, most of the model's parameters, may be on a parameter server."""
        return ParallelPlan(embeddings=("embedding",))

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights, the model as ONNX, and the words in the order of their ids.

        The ONNX model takes reviews of the full length.
        """
        words = self.dataset().vocabulary[: int(self.option("vocabulary"))]
        (target / "vocabulary.txt").write_text("\n".join(words) + "\n")
        params = {**self.params, "batching": "padded"}
        padded = Sentiment(params, self.data, self.fixed, seed=self.seed)
        files = super(Sentiment, padded).export(trial, target)
        return {**files, "vocabulary.txt": "the words, in the order of their ids"}

    def examples_part(
        self, split: str, rows: IntArray, rng_seed: tuple[int, int] | None, part: slice
    ) -> Batch:
        """`words` (b, length) and `label` (b,); a bucketed batch is shorter."""
        import torch

        reviews = self.examples_of(split)
        length = int(self.option("length"))
        if self.option("batching") == "bucketed":
            longest = int(reviews.lengths(length)[rows].max(initial=1))
            length = min(length, -(-longest // _LENGTH_STEP) * _LENGTH_STEP)
        mine = rows[part]
        words = reviews.padded(mine, length, int(self.option("vocabulary")))
        return {"words": torch.from_numpy(words), "label": torch.from_numpy(reviews.labels[mine])}

    def epoch_batches(self, epoch: int) -> Iterator[IntArray]:
        """Shuffled batches; if bucketed, each batch holds reviews of similar length."""
        batches = list(super().epoch_batches(epoch))
        if self.option("batching") == "bucketed":
            batches = self._bucketed(batches, np.random.default_rng([self.seed, epoch, 0xB0C]))
        yield from batches

    def _bucketed(self, batches: list[IntArray], rng: np.random.Generator) -> list[IntArray]:
        lengths = self.examples_of("train").lengths(int(self.option("length")))
        result = []
        for begin in range(0, len(batches), _BUCKET_BATCHES):
            group = batches[begin : begin + _BUCKET_BATCHES]
            rows = np.concatenate(group)
            rows = rows[np.argsort(lengths[rows], kind="stable")]
            result += np.split(rows, np.cumsum([len(b) for b in group])[:-1])
        return [result[i] for i in rng.permutation(len(result))]

    def evaluation_parts(self, split: str, rows: IntArray, size: int) -> Iterator[IntArray]:
        """Parts sorted by length, so that bucketed parts are short."""
        lengths = self.examples_of(split).lengths(int(self.option("length")))
        order = np.argsort(lengths[rows], kind="stable")
        yield from super().evaluation_parts(split, rows[order], size)

    def inputs(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """The words."""
        return (batch["words"],)
