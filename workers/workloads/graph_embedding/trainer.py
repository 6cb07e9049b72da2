"""Training pair by pair of partitions, with checkpoints."""

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file

from search_spaces.errors import TrialFailure
from workers.context import Context, Stopped
from workers.device.precision import matmul_precision
from workers.protocol import StopRequest
from workers.workloads._data import IntArray

from .checkpoint import load_checkpoint, save_checkpoint
from .data import Graph
from .partitions import Pair, Partitioning, edges_of_pairs, pairs_of
from .ranking import known, ranks, summary
from .tables import Tables
from .update import UpdateOptions, adagrad, gradients


@dataclass
class TrainingPosition:
    """The position of training: the next batch of a pair, in an epoch."""

    epoch: int = 0
    pair: int = 0
    batch: int = 0


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
        self.place = TrainingPosition()
        self.seconds = 0.0
        self.edges = 0
        self.reported = 0
        self.losses = 0.0, 0  # sum and number in this epoch
        self.metrics: dict[str, float] = {}
        self.work = context.folder / ".tables"  # checkpoints link to its files
        device = torch.device(context.device)
        saved = self._restore() if context.assignment.resume else None
        if saved is None:
            shutil.rmtree(self.work, ignore_errors=True)
            generator = torch.Generator().manual_seed(1000 * context.seed + 999)
            vectors = torch.empty(2 * len(graph.relations), options.dimension)
            vectors.normal_(std=options.initial_scale, generator=generator)
            saved = {"relations": vectors, "relation_state": torch.zeros_like(vectors)}
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
        try:
            while True:
                last = self.place.epoch >= self.options.max_epochs or self._over()
                due = last or self.place.epoch % self.options.evaluate_epochs == 0
                if due and self._at_start() and self.place.epoch > self.reported:
                    self._report()
                    self.reported = self.place.epoch
                if last:
                    break
                self._epoch()
            if self.options.test and len(self.graph.test):
                ranked = self._ranked(self.graph.test)
                self.metrics |= {f"test_{key}": value for key, value in ranked.items()}
        except Stopped:
            self.context.accept_stop(
                self.context.stop or self.context.stop_requested() or StopRequest.INTERRUPT
            )
            self._save(wait=False)
            return self.metrics
        self._save()
        return self.metrics

    def _at_start(self) -> bool:
        """Whether no batch of the epoch was trained yet."""
        return self.place == TrainingPosition(self.place.epoch)

    def _over(self) -> bool:
        limit = self.context.assignment.limits.train_seconds
        return limit is not None and self._total() >= limit

    def _total(self) -> float:
        return self.context.assignment.previous_seconds + self.seconds

    def _epoch(self) -> None:
        """The remaining pairs of the epoch."""
        if self._at_start():
            self.losses = 0.0, 0
        parts = edges_of_pairs(self.graph.train, self.tables.partitioning, self._rng(0xED6E))
        for index, pair in list(enumerate(pairs_of(self.options.partitions)))[self.place.pair :]:
            self._pair(index, pair, parts[pair])
            if time.monotonic() - self.saved > self.options.checkpoint_seconds:
                self._save()
        self.place = TrainingPosition(self.place.epoch + 1)

    def _pair(self, index: int, pair: Pair, edges: IntArray) -> None:
        """The remaining updates of a pair."""
        begun = time.perf_counter()
        begins = dict(zip(pair, self.tables.open(pair), strict=True))
        self.seconds += time.perf_counter() - begun
        size = self.options.batch_size
        for batch, rows in enumerate(np.split(edges, range(size, len(edges), size))):
            if batch < self.place.batch or not len(rows):
                continue
            self._look()
            if self._over():
                break
            begun = time.perf_counter()
            loss = self._update(begins, self.graph.train[rows], (index, batch))
            self.losses = self.losses[0] + loss, self.losses[1] + 1
            self.seconds += time.perf_counter() - begun
            self.edges += len(rows)
            self.place = TrainingPosition(self.place.epoch, index, batch + 1)
        self.place = TrainingPosition(self.place.epoch, index + 1)

    def _update(self, begins: Mapping[int, int], edges: IntArray, where: tuple[int, int]) -> float:
        """Update by edges (b, 3); `begins` has the first row of each open partition."""
        partitioning = self.tables.partitioning
        begin = np.array([begins.get(part, 0) for part in range(partitioning.count)])
        local = edges.copy()
        ends = edges[:, [0, 2]]
        local[:, [0, 2]] = begin[partitioning.partition[ends]] + partitioning.offset[ends]
        sizes = [partitioning.sizes[part] for part in begins]
        drawn = self._rng(0x4E6A, *where).integers(0, sum(sizes), self.options.negatives)
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
                "non_finite", f"the training loss is {float(loss)} in epoch {self.place.epoch}"
            )
        adagrad(self.tables.vectors, self.tables.state, *by_entities, self.options.learning_rate)
        adagrad(self.relations, self.state, *by_relations, self.options.learning_rate)
        return float(loss)

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.context.seed, self.place.epoch, *key])

    def _look(self) -> None:
        """Raise if the attempt must end."""
        self.context.check_stop()
        self.context.check_memory()

    def _report(self) -> None:
        """Rank validation edges and report; this does not count as training time."""
        valid = self.graph.valid
        limit = self.options.evaluate_edges
        if 0 < limit < len(valid):
            valid = valid[np.random.default_rng(0).permutation(len(valid))[:limit]]
        self.metrics = {
            **(self._ranked(valid) if len(valid) else {}),
            **({"train_loss": self.losses[0] / self.losses[1]} if self.losses[1] else {}),
            "edges_per_second": self.edges / max(self.seconds, 1e-9),
            "epoch": float(self.place.epoch),
            "train_seconds": self._total(),
            "table_bytes": float(self.tables.bytes),
        }
        self.context.emit(self.place.epoch, self.metrics, self.seconds)

    def _ranked(self, edges: IntArray) -> dict[str, float]:
        with torch.no_grad(), matmul_precision("fp32", "highest", self.tables.device):
            found = ranks(
                self.tables,
                self.relations,
                edges,
                known(self.graph),
                self.update,
                self._look,
            )
        return summary(found)

    def _save(self, *, wait: bool = True) -> None:
        """Write a checkpoint of the relations, with links to the files of the partitions.

        A link suffices, because these files are only ever replaced.
        """
        self.tables.flush()
        relations = {"relations": self.relations.cpu(), "relation_state": self.state.cpu()}
        save_checkpoint(self.context.folder, self.work, relations, self._progress(), wait=wait)
        self.context.checkpointed()
        self.saved = time.monotonic()

    def _progress(self) -> dict[str, Any]:
        return {
            "place": asdict(self.place),
            "seconds": self.seconds,
            "edges": self.edges,
            "losses": self.losses,
            "reported": self.reported,
            "metrics": self.metrics,
            "shape": [self.options.dimension, self.options.partitions],
        }

    def _restore(self) -> dict[str, torch.Tensor] | None:
        """Restore the newest checkpoint.

        Returns:
            The relations and their state; None if there is no checkpoint.
        """
        found = load_checkpoint(self.context.folder)
        if found is None:
            return None
        path, progress = found
        shape = [self.options.dimension, self.options.partitions]
        if progress["shape"] != shape:
            raise TrialFailure(
                "crashed",
                f"the checkpoint {path} has the shape {progress['shape']}, expected {shape}",
            )
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        for file in path.glob("entities-*.f32"):
            (self.work / file.name).hardlink_to(file)
        self.place = TrainingPosition(**progress["place"])
        self.edges = progress["edges"]
        self.reported = progress["reported"]
        self.losses = progress["losses"][0], progress["losses"][1]
        self.metrics = dict(progress["metrics"])
        earlier = self.context.assignment.previous_seconds
        self.seconds = max(0.0, float(progress["seconds"]) - earlier)
        return cast(dict[str, torch.Tensor], load_file(path / "relations.safetensors"))
