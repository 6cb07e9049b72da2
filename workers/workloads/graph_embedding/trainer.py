"""Training pair by pair of partitions, with checkpoints and several ranks on disjoint pairs."""

import math
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from search_spaces.errors import TrialFailure
from workers.context import Context, Stopped
from workers.device.precision import full_products
from workers.protocol import StopRequest
from workers.ranks.process_group import side_group, value_of_rank_0
from workers.workloads._data import IntArray

from .checkpoint import link, load_checkpoint, save_checkpoint
from .data import Graph
from .partitions import Pair, Partitioning, edges_of_pairs, rounds
from .ranking import known, ranks, summary
from .tables import Embeddings, Tables
from .update import UpdateOptions


@dataclass
class TrainingPosition:
    """The position of training: the next batch of a pair, in a round, in an epoch."""

    epoch: int = 0
    round: int = 0
    pair: int = 0
    batch: int = 0


@dataclass(frozen=True)
class TrainOptions:
    """Options of the training loop.

    Args:
        evaluate_epochs: epochs between reports.
        evaluate_edges: maximum number of validation edges; 0 for all.
        checkpoint_seconds: time between checkpoints.
        test: whether test edges are ranked at the end.
    """

    dimension: int
    state_size: int
    partitions: int
    batch_size: int
    learning_rate: float
    max_epochs: int
    evaluate_epochs: int
    evaluate_edges: int
    checkpoint_seconds: float
    initial_scale: float
    test: bool


_MEMORY_EVERY = 20  # updates between checks of the peak memory


class EmbeddingTrainer:
    """The part of one rank in the training of one trial."""

    def __init__(
        self, context: Context, graph: Graph, options: TrainOptions, update: UpdateOptions
    ) -> None:
        self.context = context
        self.graph = graph
        self.options = options
        self.update = update
        self.device = torch.device(context.device)
        self.place = TrainingPosition()
        self.seconds = 0.0
        self.edges = 0
        self.reported = 0
        self.losses = 0.0, 0  # sum and number in this epoch
        self.metrics: dict[str, float] = {}
        self.dealt = 0  # the epoch for which the entities were dealt to the partitions
        self.work = context.folder / ".tables"  # checkpoints link to its files
        saved = self._restore() if context.assignment.resume else None
        if saved is None and context.rank == 0:
            shutil.rmtree(self.work, ignore_errors=True)
        self._barrier()
        self.tables = Tables(
            self.work,
            self._partitioning(self.dealt),
            options.dimension,
            options.state_size,
            self.device,
            options.initial_scale,
            context.seed,
        )
        if context.world_size > 1:
            self._share_tables()
        if saved is None:
            count = len(graph.relations) * (2 if update.reciprocal else 1)
            self.embeddings = Embeddings.begin(self.tables, count)
            for pair in rounds(options.partitions)[0][context.rank :: context.world_size][:1]:
                self.tables.open(pair)  # initial vectors do not count as training time
        else:
            relations, state = (
                saved[key].to(self.device) for key in ("relations", "relation_state")
            )
            self.embeddings = Embeddings(self.tables, relations, state)
        self.saved = time.monotonic()

    def _share_tables(self) -> None:
        """Let rank 0 write the partitions that have no file, and check that all ranks see them.

        A rank on another disk would go on with initial vectors or old ones instead.

        Raises:
            TrialFailure: a rank does not see the folder of rank 0.
        """
        token = self.work / f"shared-{value_of_rank_0(uuid.uuid4().hex)}"
        if self.context.rank == 0:
            self.tables.draw()
            token.touch()
        self._barrier()
        if self._any_rank(not token.exists()):
            raise TrialFailure(
                "crashed",
                f"the ranks share no folder {self.work}, where the partitions are: put the store "
                "on a disk of all nodes, or let the ranks of a trial run on one node",
            )
        self.tables.expect_files()

    def _partitioning(self, deal: int) -> Partitioning:
        return Partitioning.random(
            len(self.graph.entities), self.options.partitions, self.context.seed, deal
        )

    def run(self) -> dict[str, float]:
        """Train to the end, or until a stop request; returns the last metrics."""
        try:
            while True:
                last = self.place.epoch >= self.options.max_epochs or self._any_rank(self._over())
                due = last or self.place.epoch % self.options.evaluate_epochs == 0
                if due and self._at_start() and self.place.epoch > self.reported:
                    self._alone(self._report)
                    self.reported = self.place.epoch
                if last:
                    break
                self._epoch()
            if self.options.test and len(self.graph.test):
                self._alone(self._test)
        except Stopped:
            self.context.accept_stop(
                self.context.stop or self.context.stop_requested() or StopRequest.INTERRUPT
            )
            if self.context.world_size == 1:  # several ranks resume from the last whole round
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

    def _any_rank(self, flag_here: bool) -> bool:
        """Whether the flag is set on any rank; all ranks must call it."""
        if self.context.world_size == 1:
            return flag_here
        flag = torch.tensor(float(flag_here))
        dist.all_reduce(flag, group=side_group())
        return bool(flag)

    def _alone(self, work: Callable[[], None]) -> None:
        """Run `work` on rank 0 while the others wait; if it is stopped, all ranks are."""
        stopped = False
        if self.context.rank == 0:
            try:
                work()
            except Stopped:
                stopped = True
        if self._any_rank(stopped):
            raise Stopped

    def _total(self) -> float:
        return self.context.assignment.previous_seconds + self.seconds

    def _epoch(self) -> None:
        """The remaining rounds of the epoch."""
        if self._at_start():
            self.losses = 0.0, 0
            self._deal()
        parts = edges_of_pairs(self.graph.train, self.tables.partitioning, self._rng(0xED6E))
        for number, pairs in list(enumerate(rounds(self.options.partitions)))[self.place.round :]:
            before = self.embeddings.copied()
            mine = list(enumerate(pairs))[self.context.rank :: self.context.world_size]
            stopped = False
            try:
                for index, pair in mine:
                    if index >= self.place.pair:
                        self._pair(index, pair, parts[pair])
            except Stopped:
                stopped = True
            self._meet(before, stopped)
            self.place = TrainingPosition(self.place.epoch, number + 1)
            if self._any_rank(time.monotonic() - self.saved > self.options.checkpoint_seconds):
                self._save()
        self.place = TrainingPosition(self.place.epoch + 1)

    def _deal(self) -> None:
        """Shuffle the entities over the partitions in each epoch, if they are not all in memory.

        Otherwise entities of different partitions would never be compared as ends of the same edge.
        """
        if self.options.partitions <= 2 or self.dealt == self.place.epoch:
            return
        begun = time.perf_counter()
        dealt = self._partitioning(self.place.epoch)
        self._alone(lambda: self.tables.deal(dealt, self._look))
        self.tables.adopt(dealt)
        self.dealt = self.place.epoch
        self.seconds += time.perf_counter() - begun

    def _pair(self, index: int, pair: Pair, edges: IntArray) -> None:
        """The remaining updates of a pair."""
        begun = time.perf_counter()
        begins = dict(zip(pair, self.tables.open(pair), strict=True))
        self.seconds += time.perf_counter() - begun
        size = self.options.batch_size
        for batch, rows in enumerate(np.split(edges, range(size, len(edges), size))):
            if batch < self.place.batch or not len(rows):
                continue
            self._look(batch)
            if self._over():
                break
            begun = time.perf_counter()
            loss = self._update(begins, self.graph.train[rows], (index, batch))
            self.losses = self.losses[0] + loss, self.losses[1] + 1
            self.seconds += time.perf_counter() - begun
            self.edges += len(rows)
            self.place = TrainingPosition(self.place.epoch, self.place.round, index, batch + 1)
        self.place = TrainingPosition(self.place.epoch, self.place.round, index + 1)

    def _update(self, begins: Mapping[int, int], edges: IntArray, where: tuple[int, int]) -> float:
        rng = self._rng(0x4E6A, self.place.round, *where)
        negatives = self.embeddings.negatives(begins, self.update.negatives, rng)
        loss = self.embeddings.update(
            begins, edges, negatives, self.update, self.options.learning_rate
        )
        if not math.isfinite(loss):
            raise TrialFailure(
                "non_finite", f"the training loss is {loss} in epoch {self.place.epoch}"
            )
        return loss

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.context.seed, self.place.epoch, *key])

    def _look(self, batch: int = 0) -> None:
        """Raise if the attempt must end."""
        self.context.check_stop()
        limit = self.context.assignment.limits.memory_bytes
        memory = self.context.memory
        if limit and memory and batch % _MEMORY_EVERY == 0 and memory.bytes() > limit:
            raise TrialFailure("out_of_memory", f"used more than its limit of {limit} bytes")

    def _meet(self, before: tuple[torch.Tensor, torch.Tensor], stopped: bool) -> None:
        """Add up the changes of all ranks to the relations; if one rank is stopped, all are."""
        if self.context.world_size > 1:
            self.tables.flush()
            self.tables.drop()
            stopped = self._any_rank(stopped)
            self.embeddings.add_up(before)
        if stopped:
            raise Stopped

    def _barrier(self) -> None:
        """Wait for all ranks, at gloo: NCCL's calls end after ten minutes."""
        if self.context.world_size > 1:
            dist.barrier(group=side_group())

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

    def _test(self) -> None:
        self.metrics |= {
            f"test_{key}": value for key, value in self._ranked(self.graph.test).items()
        }

    def _ranked(self, edges: IntArray) -> dict[str, float]:
        with torch.no_grad(), full_products(self.tables.device):
            found = ranks(
                self.tables,
                self.embeddings.relations,
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
        self._barrier()
        if self.context.rank == 0:
            save_checkpoint(
                self.context.folder,
                self.work,
                {
                    "relations": self.embeddings.relations.cpu(),
                    "relation_state": self.embeddings.state.cpu(),
                },
                self._progress(),
                wait=wait,
            )
            self.context.checkpointed()
        self.saved = time.monotonic()
        self._barrier()

    def _progress(self) -> dict[str, Any]:
        return {
            "place": asdict(self.place),
            "seconds": self.seconds,
            "edges": self.edges,
            "losses": self.losses,
            "reported": self.reported,
            "metrics": self.metrics,
            "shape": [self.options.dimension, self.options.state_size, self.options.partitions],
            "dealt": self.dealt,
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
        shape = [self.options.dimension, self.options.state_size, self.options.partitions]
        if progress["shape"] != shape:
            raise TrialFailure(
                "crashed",
                f"the checkpoint {path} has the shape {progress['shape']}, expected {shape}",
            )
        if self.context.rank == 0:
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True)
            for file in path.glob("entities-*.f32"):
                link(file, self.work / file.name)
        self.dealt = int(progress.get("dealt", 0))
        self.place = TrainingPosition(**progress["place"])
        self.edges = progress["edges"]
        self.reported = progress["reported"]
        self.losses = progress["losses"][0], progress["losses"][1]
        self.metrics = dict(progress["metrics"])
        earlier = self.context.assignment.previous_seconds
        self.seconds = max(0.0, float(progress["seconds"]) - earlier)
        return cast(dict[str, torch.Tensor], load_file(path / "relations.safetensors"))
