"""Translation: a Transformer encoder-decoder trained on parallel sentences, judged by BLEU.

The folder holds, apart from each other: the built-in corpus (`builtin`, `lexicon`, `numerals`), reading corpora
(`data`), subwords (`vocabulary`), batches (`batches`), the model (`model`, `attention`, `dropout`, `loss`), what is
known about it (`layouts`, `parallel`), search (`decoding`), scores (`metrics`), and the command line (`cli`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Space
from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware
from workers.protocol import Metric
from workers.training.metrics import TRAINING_METRICS
from workers.workload import ParallelPlan
from workers.workloads._trained import Trained

from . import data as _data
from . import options

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from search_spaces.knobs import Dropped
    from workers.context import Context
    from workers.workload import Batch

    from .decoding import Search
    from .model import Architecture
    from .prepare import Prepared

__all__ = ["Translation"]


class Translation(Trained):
    """Trains on one corpus and reports `bleu`, `chrf` (0 to 100), `loss` a token and `perplexity` on validation.

    The metrics are computed on the first `eval_sentences` of the validation split. The translations that they were
    computed from are written to the trial's folder: `hypotheses.valid.txt` beside `references.valid.txt`.
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
    trains_on_valid: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = options.DEFAULTS
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
    def space(cls, hardware: Hardware) -> Space:
        """Optimizer, batch, architecture, precision, attention layout, parallelism and switches of the run time."""
        return options.space(hardware)

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[Dropped]:
        """The values that `space` leaves out on this hardware."""
        return options.declare(hardware).dropped

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Read the corpus's files and the fixed options; raises DataError or UsageError."""
        options.check(fixed)
        _data.check(data)
        if data.get("name") == "prepared":
            from .shards import Shards

            Shards.open(_data.folder_of(data))

    def run(self, context: Context) -> Mapping[str, float]:
        """Train, with the trial's folder for what is cached and written."""
        from workers.device.peak_memory import keep_few_kernels

        from .vocabulary import keep

        keep_few_kernels()  # hardly two batches are of one shape
        self._context = context
        resumes = context.assignment.resume
        keep(
            self.prepared.vocabulary,
            context.folder / "vocabulary.model",
            resumes,
            writes=context.rank == 0,
        )
        return super().run(context)

    @cached_property
    def prepared(self) -> Prepared:
        """The corpus in ids and its vocabulary."""
        from . import prepare

        size, longest, kind = (
            self.option(name) for name in ("vocabulary_size", "max_length", "vocabulary_kind")
        )
        return prepare.prepare(self.data, size, longest, self._folder("cache"), kind)

    @cached_property
    def architecture(self) -> Architecture:
        """What the model is built from."""
        from .model import Architecture

        width, layers = self.option("width"), self.option("num_layers")
        return Architecture(
            vocabulary_size=len(self.prepared.vocabulary),
            width=width,
            num_heads=self.option("num_heads"),
            encoder_layers=layers,
            decoder_layers=self.option("num_decoder_layers") or layers,
            feed_forward=width * self.option("feed_forward_ratio"),
            dropout=self.option("dropout"),
            layout=self.option("attention_layout"),
            inference_layout=self.option("inference_layout"),
            kernel=self.option("attention_kernel"),
            positions=self.option("positions"),
            tied=self.option("tied_embeddings"),
            max_length=self.option("max_length"),
            cutoffs=self._cutoffs(),
        )

    def _cutoffs(self) -> tuple[int, ...]:
        """Of the adaptive softmax; none for the full one."""
        if self.option("softmax") != "adaptive":
            return ()
        size = len(self.prepared.vocabulary)
        cutoffs = tuple(self.option("softmax_cutoffs") or (max(8, size // 10), max(9, size // 2)))
        if cutoffs[-1] >= size:
            raise UsageError(
                f"softmax_cutoffs must be below the vocabulary's {size} entries, got {list(cutoffs)}"
            )
        return cutoffs

    def build_model(self) -> nn.Module:
        """A Transformer; the same function for the same seed, whatever the attention layout."""
        from .model import Transformer

        options.check({name: self.option(name) for name in options.DEFAULTS})
        return Transformer(self.architecture, self.seed)

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """Batches of at most `batch_tokens` target positions: `source`, `shifted` and `labels`, see `batches`."""
        return self.train_batches_from(epoch, 0)

    def train_batches_from(self, epoch: int, index: int) -> Iterator[Batch]:
        """As `train_batches`, without making those before."""
        return self.prepared.train.batches(self.option("batch_tokens"), self.seed, epoch, index)

    def inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Source and shifted target ids."""
        return batch["source"], batch["shifted"]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """As `criterion` has it; in training on CPUs, logits and loss are computed together, a chunk at a time."""
        import torch

        device = batch["labels"].device.type
        if (
            device != "cpu"
            or torch.compiler.is_compiling()
            or torch.get_autocast_dtype("cpu") == torch.float16
        ):
            return super().loss(model, batch)
        smoothing = float(self.option("label_smoothing"))
        found: Tensor = model(*self.inputs(batch), labels=batch["labels"], smoothing=smoothing)
        return found

    def criterion(self, output: Tensor, batch: Batch) -> Tensor:
        """Label-smoothed cross-entropy of logits (n, v) of the tokens, or (b, t, v) with padding."""
        from .loss import smoothed_cross_entropy

        labels = batch["labels"]
        real = labels != 0
        if output.ndim == 3:
            output = output[real]
        return smoothed_cross_entropy(output, labels[real], float(self.option("label_smoothing")))

    def weight(self, batch: Batch) -> float:
        """Number of target tokens, ends of sentences included."""
        return float((batch["labels"] != 0).sum())

    def learning_rate(self, update: int) -> float:
        """Linear warm-up to `learning_rate`, then decay by the inverse square root (Vaswani et al. 2017, 5.3)."""
        warmup = max(1, int(self.option("warmup_updates")))
        factor: float = min(update / warmup, (warmup / update) ** 0.5)
        return float(self.option("learning_rate")) * factor

    def plan(self, model: nn.Module) -> ParallelPlan:
        """See `parallel`."""
        from . import parallel

        return parallel.plan(self.architecture)

    def canonical(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Query, key and value apart, whatever the attention layout."""
        from . import layouts

        return layouts.canonical(tensors, self.architecture.layout, self.architecture.head_dim)

    def native(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As the attention layout of this configuration keeps them."""
        from . import layouts

        return layouts.native(tensors, self.architecture.layout, self.architecture.head_dim)

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Weights, vocabulary and architecture, with which `translate` of the command line works."""
        from . import exported

        return exported.export(self, trial, target)

    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        """Loss and translations of the validation sentences."""
        from .evaluation import evaluate

        result = evaluate(model, self.prepared, self._search(), int(self.option("eval_sentences")))
        folder = self._folder()
        if folder is not None and self._context is not None:
            result.write(folder)
            self._context.details.update(result.details())
        return result.metrics

    def _search(self) -> Search:
        from .decoding import Search

        length, coverage = (
            float(self.option(name)) for name in ("length_penalty", "coverage_penalty")
        )
        return Search(int(self.option("beam")), length, coverage)

    def _folder(self, name: str = "") -> Path | None:
        """The trial's folder, or one that the trials of a sweep share; None outside of a trial."""
        if self._context is None:
            return None
        folder = self._context.folder
        if not name:
            return folder
        return (folder.parent if folder.parent.name == "trials" else folder) / name
