"""Translation: a Transformer encoder-decoder trained on parallel sentences, scored by BLEU.

The built-in corpus: `builtin`. Other corpora, language tags: `data`. Subwords: `vocabulary`.
Batches: `batches`. The model: `model`, `attention`, `attention_layouts`, `loss`, `parallel_plan`.
Decoding: `beam_search`. Scores: `evaluation`. Trained models and their command: `translator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware
from search_spaces.knobs.table import (
    ATTENTION_LAYOUT,
    CHUNKED_LOSS,
    COMPILE,
    COMPILE_SCOPE,
    DROPOUT,
    LABEL_SMOOTHING,
    LEARNING_RATE,
    NUM_HEADS,
)
from workers.batches import Batch, CountedRows, PlannedBatch
from workers.context import Context
from workers.protocol import Metric
from workers.training import TRAINING_METRICS
from workers.workload import ParallelPlan, SharedEvaluation
from workers.workloads._declarative_workload import DeclarativeWorkload, Options, TrainedWorkload

from . import data as _data

if TYPE_CHECKING:
    import torch

    from .batches import Prepared
    from .model import Architecture

__all__ = ["Translation"]

_WORDS = {
    "vocabulary_kind": ("bpe", "unigram", "word"),
    "tokenizer": ("auto", "13a", "zh", "ja-mecab", "char"),
    "attention_kernel": ("auto", "sdpa", "math", "fused"),
    "attention_layout": ATTENTION_LAYOUT.choices,
    "tied_embeddings": (True, False),
}
_COUNTS = (
    *("vocabulary_size", "max_length", "num_layers", "num_decoder_layers", "width", "num_heads"),
    *("feed_forward_ratio", "batch_tokens", "warmup_updates", "eval_sentences", "beam"),
)
_SHARES = ("dropout", "label_smoothing")


class Translation(DeclarativeWorkload, SharedEvaluation, TrainedWorkload):
    """Trains on one corpus and reports validation metrics.

    `bleu` and `chrf` are 0 to 100, `loss` is in nats per token, `perplexity` is its exponential.
    They are computed on the first `eval_sentences` of the validation split. The translations are
    written to the trial's folder, `hypotheses.valid.txt` beside `references.valid.txt`.
    """

    name: ClassVar[str] = "translation"
    summary: ClassVar[str] = "Transformer encoder-decoder on parallel sentences, judged by BLEU"
    goals: ClassVar[tuple[str, ...]] = ("maximize bleu",)
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("bleu", "maximize"),
        Metric("chrf", "maximize"),
        Metric("loss", "minimize"),
        Metric("perplexity", "minimize"),
        *TRAINING_METRICS,
    )
    reads: ClassVar[tuple[str, ...]] = (
        "attention_backend",
        "checkpoint_every",
        "compile_scope",
        "chunked_loss",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        # data
        "vocabulary_size": 2000,
        "vocabulary_kind": "bpe",
        "max_length": 128,
        "tokenizer": "auto",  # of BLEU, by the script of the references
        # model
        "num_layers": 2,
        "num_decoder_layers": None,  # as num_layers
        "width": 128,
        "num_heads": NUM_HEADS.default,
        "feed_forward_ratio": 4,
        "dropout": DROPOUT.default,
        "attention_layout": ATTENTION_LAYOUT.default,
        "attention_kernel": "auto",
        "tied_embeddings": True,
        # training; workers.training has further options
        "label_smoothing": LABEL_SMOOTHING.default,
        "batch_tokens": 1024,
        "learning_rate": LEARNING_RATE.default,
        "warmup_updates": 100,
        "optimizer": "adam",
        "max_epochs": 30,
        "evaluate_seconds": 8.0,
        # evaluation
        "eval_sentences": 400,
        "beam": 1,
        "length_penalty": 1.0,
    }
    smallest: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"train": 150, "valid": 10},
        "fixed": {
            "vocabulary_size": 250,
            "width": 16,
            "num_layers": 1,
            "max_epochs": 2,
            "eval_sentences": 6,
            "max_length": 40,
            "evaluate_seconds": None,
            "evaluate_updates": 4,
        },
    }

    _context: Context | None = None

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """Optimizer, batch, architecture, precision, parallelism and runtime switches."""
        return {
            "optimizer": {
                "optimizer": False,
                "learning_rate": {"low": 1e-4, "high": 2e-2},
                "warmup_updates": {"low": 10, "high": 1000},
                "weight_decay": False,
            },
            "batch": {"unit": "tokens", "batch_tokens": [512, 1024, 2048, 4096]},
            "architecture": {
                "width": [64, 96, 128, 192, 256, 384, 512],
                "dropout": {"low": 0.0, "high": 0.4},
            },
            "precision": {},
            "attention": {},
            "parallelism": {"plan": ("layers", "tensor", "num_heads", "stages")},
            "runtime": {
                "tune": ["matmul_precision", "activation_checkpointing", "compile"],
                "matmul_precision": {"when": {"precision": "fp32"}},
            },
        }

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Check the corpus files and the fixed options; raises DataError or UsageError."""
        _check_options(fixed)
        _data.check(data)

    @classmethod
    def metrics_on(cls, data: Mapping[str, Any]) -> tuple[Metric, ...]:
        """See `Workload`; with several language pairs, BLEU of each, such as `bleu_en_de`."""
        return (*cls.metrics, *(Metric(pair.metric, "maximize") for pair in _data.pairs_of(data)))

    @classmethod
    def commands(cls) -> Mapping[str, Callable[[Sequence[str]], None]]:
        """`translate`."""

        def translate(arguments: Sequence[str]) -> None:
            from .translator import main

            main(arguments)

        return {"translate": translate}

    def run(self, context: Context) -> Mapping[str, float]:
        """Train; the trial's folder holds the caches and the output."""
        from workers.device.peak_memory import keep_few_kernels

        from .vocabulary import keep

        keep_few_kernels()  # almost every batch has a new shape
        self._context = context
        keep(
            self.prepared.vocabulary,
            context.folder / "vocabulary.model",
            context.assignment.resume,
            writes=context.rank == 0,
        )
        return super().run(context)

    def load_data(self) -> None:
        """See `Workload`."""
        _ = self.prepared

    @cached_property
    def prepared(self) -> Prepared:
        """The encoded corpus and its vocabulary."""
        from .batches import prepare

        size, longest, kind = (
            self.option(name) for name in ("vocabulary_size", "max_length", "vocabulary_kind")
        )
        return prepare(self.data, size, longest, self._folder("cache"), kind)

    @cached_property
    def architecture(self) -> Architecture:
        """The architecture of the model."""
        from .model import Architecture

        width = self.option("width")
        layers = self.option("num_layers")
        return Architecture(
            vocabulary_size=len(self.prepared.vocabulary),
            width=width,
            num_heads=self.option("num_heads"),
            encoder_layers=layers,
            decoder_layers=self.option("num_decoder_layers") or layers,
            feed_forward=width * self.option("feed_forward_ratio"),
            dropout=self.option("dropout"),
            layout=self.option("attention_layout"),
            kernel=self.option("attention_kernel"),
            tied=self.option("tied_embeddings"),
            max_length=self.option("max_length"),
        )

    def build_model(self) -> torch.nn.Module:
        """A Transformer; for a given seed, the same function under every attention layout."""
        from .model import Transformer

        _check_options({name: self.option(name) for name in self.defaults})
        return Transformer(self.architecture, self.seed)

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """Batches of at most `batch_tokens` target positions, see `Examples.batch`."""
        return self.train_batches_from(epoch, 0)

    def train_batches_from(self, epoch: int, index: int) -> Iterator[Batch]:
        """Like `train_batches`, starting at batch `index` without building the earlier ones."""
        return self.prepared.train.batches(self.option("batch_tokens"), self.seed, epoch, index)

    def bucketed(self, batch: Batch) -> Batch:
        """See `batches.bucketed`."""
        from .batches import bucketed

        return bucketed(batch, int(self.option("max_length")))

    def inputs(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Source and shifted target ids."""
        return batch["source"], batch["shifted"]

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """See `criterion`; `chunked_loss` computes logits and loss together, in chunks."""
        from .loss import cross_entropy, real_positions

        if self._compiles_whole_model and not self._loss_in_chunks(batch["labels"]):
            return super().loss(model, batch)
        smoothing = float(self.option("label_smoothing"))
        known = batch.num_items if isinstance(batch, CountedRows) else None
        real = real_positions(batch["labels"], known)
        labels = batch["labels"].flatten().index_select(0, real)
        if self._loss_in_chunks(labels):
            found = model(*self.inputs(batch), labels=labels, smoothing=smoothing, real=real)
            return cast("torch.Tensor", found)
        return cross_entropy(model(*self.inputs(batch), real=real), labels, smoothing)

    @property
    def _compiles_whole_model(self) -> bool:
        values = {**self.fixed, **self.params}
        compiled: bool = COMPILE.value(values) != "off"
        return compiled and COMPILE_SCOPE.value(values) == "model"

    def _loss_in_chunks(self, labels: torch.Tensor) -> bool:
        import torch

        from workers.device.precision import device_type

        device = labels.device.type
        wanted = CHUNKED_LOSS.value({**self.fixed, **self.params})
        half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        if half == torch.float16:
            return False
        return bool(device_type(labels) == "cpu" if wanted is None else wanted)

    def criterion(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Label-smoothed cross-entropy of logits (n, v) of tokens, or (b, t, v) with padding."""
        from .loss import cross_entropy

        labels = batch["labels"].flatten()
        if output.ndim == 2:
            labels = labels[labels != 0]
        smoothing = float(self.option("label_smoothing"))
        return cross_entropy(output.flatten(0, -2), labels, smoothing)

    def weight(self, batch: Batch) -> float:
        """Number of target tokens, including end-of-sentence tokens."""
        if isinstance(batch, PlannedBatch):
            return float(batch.num_items)
        return float((batch["labels"] != 0).sum())

    def learning_rate(self, update: int) -> float:
        """Linear warm-up, then inverse square-root decay (Vaswani et al. 2017, section 5.3)."""
        warmup = max(1, int(self.option("warmup_updates")))
        factor: float = min(update / warmup, (warmup / update) ** 0.5)
        return float(self.option("learning_rate")) * factor

    def plan(self, model: torch.nn.Module) -> ParallelPlan:
        """See `parallel_plan`."""
        from . import parallel_plan

        return parallel_plan.plan(self.architecture)

    def canonical(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors with query, key and value separate, for any attention layout."""
        from . import attention_layouts

        return attention_layouts.canonical(
            tensors, self.architecture.layout, self.architecture.head_dim
        )

    def native(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors in the attention layout of this configuration; the inverse of `canonical`."""
        from . import attention_layouts

        return attention_layouts.native(
            tensors, self.architecture.layout, self.architecture.head_dim
        )

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write weights, vocabulary and architecture for the command `translate`."""
        from . import translator

        return translator.export(self, trial, target)

    def evaluate_share(
        self, model: torch.nn.Module, device: torch.device, index: int, count: int
    ) -> Mapping[str, Any]:
        """Summed loss and translations of a share of the validation sentences."""
        from .beam_search import SearchOptions
        from .evaluation import evaluate_share

        search = SearchOptions(int(self.option("beam")), float(self.option("length_penalty")))
        sentences = int(self.option("eval_sentences"))
        return evaluate_share(model, self.prepared, search, sentences, index, count)

    def combine(self, shares: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """Loss and scores of the validation sentences."""
        from .evaluation import combine

        result = combine(shares, self.prepared, str(self.option("tokenizer")))
        folder = self._folder()
        if folder is not None and self._context is not None:
            result.write(folder)
            self._context.details.update(result.details)
        return result.metrics

    def _folder(self, name: str = "") -> Path | None:
        """The trial's folder, or one shared by the trials of a sweep; None outside a trial."""
        if self._context is None:
            return None
        folder = self._context.folder
        if not name:
            return folder
        return (folder.parent if folder.parent.name == "trials" else folder) / name


def _check_options(given: Mapping[str, Any]) -> None:
    """Raise UsageError where an option has no such value."""
    for name, value in given.items():
        if name in _WORDS and value not in _WORDS[name]:
            raise UsageError(f"{name} is one of {', '.join(map(str, _WORDS[name]))}, got {value!r}")
        if (
            name in _COUNTS
            and value is not None
            and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
        ):
            raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")
        if name in _SHARES and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1
        ):
            raise UsageError(f"{name} must be at least 0 and below 1, got {value!r}")
    width, heads = (given.get(name, Translation.defaults[name]) for name in ("width", "num_heads"))
    if width % heads or width % 2:
        raise UsageError(
            "width must be even and a multiple of num_heads, "
            f"got width {width} and num_heads {heads}"
        )
