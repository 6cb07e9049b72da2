"""Training pair by pair of partitions, with checkpoints."""

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

import numpy as np
import torch
from safetensors.torch import load_file

from search_spaces.errors import TrialFailure
from workers.context import Context, Stopped
from workers.device.precision import matmul_precision
from workers.protocol import StopRequest
from workers.workloads._declarative_workload import IntArray

from .data import Graph
from .partitions import Pair, Partitioning, edges_of_pairs, pairs_of
from .ranking import known, ranks, summary
from .tables import Tables, load_checkpoint, save_checkpoint
from .update import UpdateOptions, adagrad, gradients


@dataclass
class Progress:
    """How far the training is; a checkpoint holds it.

    Attributes:
        epoch, pair, batch: what comes next, the batch of a pair of partitions.
        seconds: of training.
        edges: trained in these seconds.
        loss, updates: sum of the losses of this epoch, and their number.
        reported: the epoch of the last report.
        metrics: of the last report.
    """

    epoch: int = 0
    pair: int = 0
    batch: int = 0
    seconds: float = 0.0
    edges: int = 0
    loss: float = 0.0
    updates: int = 0
    reported: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainOptions:
    """Options of the training loop.

    Args:
        model: one of `OPERATORS`.
        negatives: random entities that each edge of a batch is compared with, at both ends.
        regularization: weight of the nuclear 3-norm.
        initial_scale: standard deviation of the initial vectors.
        evaluate_epochs: epochs between reports.
        evaluate_edges: maximum number of validation edges; 0 for all.
        checkpoint_seconds: time between checkpoints.
        test: whether test edges are ranked at the end.
        dtype: of the products between queries and negatives.
    """

    model: str
    dimension: int
    partitions: int
    batch_size: int
    negatives: int
    learning_rate: float
    regularization: float
    initial_scale: float
    max_epochs: int
    evaluate_epochs: int
    evaluate_edges: int
    checkpoint_seconds: float
    test: bool
    dtype: torch.dtype


class EmbeddingTrainer:
    """The training of one trial."""

    def __init__(self, context: Context, graph: Graph, options: TrainOptions) -> None:
        self.context = context
        self.graph = graph
        self.options = options
        self.update = UpdateOptions(options.model, options.regularization, options.dtype)
        self.progress = Progress()
        self.work = context.folder / ".tables"  # checkpoints link to its files
        saved = self._restore() if context.assignment.resume else None
        if saved is None:
            shutil.rmtree(self.work, ignore_errors=True)
            generator = torch.Generator().manual_seed(1000 * context.seed + 999)
            vectors = torch.empty(2 * len(graph.relations), options.dimension)
            vectors.normal_(std=options.initial_scale, generator=generator)
            saved = {"relations": vectors, "relation_state": torch.zeros_like(vectors)}
        # Seconds of training in earlier attempts of which no checkpoint is left.
        self.lost = max(0.0, context.assignment.previous_seconds - self.progress.seconds)
        device = torch.device(context.device)
        self.relations, self.state = (
            saved[key].to(device) for key in ("relations", "relation_state")
        )
        self.tables = Tables(
            self.work,
            Partitioning.random(len(graph.entities), options.partitions, context.seed),
            options.dimension,
            options.dimension,
            device,
            options.initial_scale,
            context.seed,
        )
        self.tables.open(pairs_of(options.partitions)[0])  # it is not training time
        self.saved = time.monotonic()

    def run(self) -> dict[str, float]:
        """Train to the end, or until a stop request; returns the last metrics."""
        progress = self.progress
        try:
            while True:
                last = progress.epoch >= self.options.max_epochs or self._over()
                due = last or progress.epoch % self.options.evaluate_epochs == 0
                if due and self._at_start() and progress.epoch > progress.reported:
                    self._report()
                if last:
                    break
                self._epoch()
            if self.options.test and len(self.graph.test):
                ranked = self._ranked(self.graph.test)
                progress.metrics |= {f"test_{key}": value for key, value in ranked.items()}
        except Stopped:
            asked = self.context.stop or self.context.stop_requested()
            self.context.stop = asked or StopRequest.INTERRUPT
            self._save(wait=False)
            return progress.metrics
        self._save()
        return progress.metrics

    def _at_start(self) -> bool:
        """Whether no batch of the epoch was trained yet."""
        return not self.progress.pair and not self.progress.batch

    def _over(self) -> bool:
        limit = self.context.assignment.limits.train_seconds
        return limit is not None and self.lost + self.progress.seconds >= limit

    def _epoch(self) -> None:
        """The remaining pairs of the epoch."""
        progress = self.progress
        if self._at_start():
            progress.loss, progress.updates = 0.0, 0
        parts = edges_of_pairs(self.graph.train, self.tables.partitioning, self._rng(0xED6E))
        for pair in pairs_of(self.options.partitions)[progress.pair :]:
            self._pair(pair, parts[pair])
            if time.monotonic() - self.saved > self.options.checkpoint_seconds:
                self._save()
        progress.epoch, progress.pair = progress.epoch + 1, 0

    def _pair(self, pair: Pair, edges: IntArray) -> None:
        """The remaining updates of a pair."""
        progress = self.progress
        begun = time.perf_counter()
        begins = dict(zip(pair, self.tables.open(pair), strict=True))
        progress.seconds += time.perf_counter() - begun
        size = self.options.batch_size
        for begin in range(size * progress.batch, len(edges), size):
            self._look()
            if self._over():
                break
            begun = time.perf_counter()
            rows = edges[begin : begin + size]
            progress.loss += self._update(begins, self.graph.train[rows])
            progress.updates += 1
            progress.seconds += time.perf_counter() - begun
            progress.edges += len(rows)
            progress.batch += 1
        progress.pair, progress.batch = progress.pair + 1, 0

    def _update(self, begins: Mapping[int, int], edges: IntArray) -> float:
        """Update by edges (b, 3); `begins` has the first row of each open partition."""
        partitioning, progress = self.tables.partitioning, self.progress
        begin = np.array([begins.get(part, 0) for part in range(partitioning.count)])
        local = edges.copy()
        ends = edges[:, [0, 2]]
        local[:, [0, 2]] = begin[partitioning.partition[ends]] + partitioning.offset[ends]
        sizes = [partitioning.sizes[part] for part in begins]
        drawn = self._rng(0x4E6A, progress.pair, progress.batch).integers(
            0, sum(sizes), self.options.negatives
        )
        starts = list(begins.values())
        negatives = np.where(drawn < sizes[0], starts[0] + drawn, starts[-1] + drawn - sizes[0])
        device = self.tables.device
        loss, by_entities, by_relations = gradients(
            self.tables.vectors,
            self.relations,
            torch.from_numpy(local).to(device),
            torch.from_numpy(negatives).to(device),
            self.update,
        )
        if not math.isfinite(loss):
            raise TrialFailure(
                "non_finite", f"the training loss is {float(loss)} in epoch {progress.epoch}"
            )
        adagrad(self.tables.vectors, self.tables.state, *by_entities, self.options.learning_rate)
        adagrad(self.relations, self.state, *by_relations, self.options.learning_rate)
        return float(loss)

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.context.seed, self.progress.epoch, *key])

    def _look(self) -> None:
        """Raise if the attempt must end."""
        self.context.check_stop()
        self.context.check_memory()

    def _report(self) -> None:
        """Rank validation edges and report; this does not count as training time."""
        valid, progress = self.graph.valid, self.progress
        limit = self.options.evaluate_edges
        if 0 < limit < len(valid):
            valid = valid[np.random.default_rng(0).permutation(len(valid))[:limit]]
        progress.metrics = {
            **(self._ranked(valid) if len(valid) else {}),
            **({"train_loss": progress.loss / progress.updates} if progress.updates else {}),
            "edges_per_second": progress.edges / max(progress.seconds, 1e-9),
            "epoch": float(progress.epoch),
            "train_seconds": self.lost + progress.seconds,
            "table_bytes": float(self.tables.buffer.nbytes),
        }
        seconds = self.lost + progress.seconds - self.context.assignment.previous_seconds
        self.context.emit(progress.epoch, progress.metrics, seconds)
        progress.reported = progress.epoch

    def _ranked(self, edges: IntArray) -> dict[str, float]:
        with torch.no_grad(), matmul_precision("fp32", "highest", self.tables.device):
            index = known(self.graph)
            return summary(
                ranks(self.tables, self.relations, edges, index, self.update, self._look)
            )

    def _save(self, *, wait: bool = True) -> None:
        """Write a checkpoint of the relations, with links to the files of the partitions."""
        self.tables.flush()
        relations = {"relations": self.relations.cpu(), "relation_state": self.state.cpu()}
        save_checkpoint(self.context.folder, self.work, relations, asdict(self.progress), wait=wait)
        self.context.checkpointed()
        self.saved = time.monotonic()

    def _restore(self) -> dict[str, torch.Tensor] | None:
        """Restore the newest checkpoint.

        Returns:
            The relations and their state; None if there is no checkpoint.
        """
        found = load_checkpoint(self.context.folder)
        if found is None:
            return None
        path, progress = found
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        for file in path.glob("entities-*.f32"):
            (self.work / file.name).hardlink_to(file)
        self.progress = Progress(**progress)
        return cast(dict[str, torch.Tensor], load_file(path / "relations.safetensors"))
