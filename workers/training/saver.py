"""Saves and loads the checkpoints of a training; no rank holds the whole of a sharded model."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim import Optimizer

from workers.context import Context
from workers.parallel.base import Strategy
from workers.parallel.transfers import Part
from workers.ranks.process_group import value_of_rank_0
from workers.workload import Trainable

from . import checkpoint


class Saver:
    """Writes and reads checkpoints on rank 0, as folders may not be shared; all ranks take part.

    Args:
        workload, context, strategy, optimizer: of the training.
        parts: of the model; rank 0 holds one of them at a time.
    """

    def __init__(
        self,
        workload: Trainable,
        context: Context,
        strategy: Strategy,
        optimizer: Optimizer,
        parts: Sequence[Part],
    ) -> None:
        self.workload = workload
        self.context = context
        self.strategy = strategy
        self.optimizer = optimizer
        self.parts = parts

    def save(self, update: int, progress: Mapping[str, Any], *, wait: bool) -> None:
        """Write a checkpoint of this update; see `checkpoint.save`."""
        canonical = self.workload.canonical
        leads = self.context.rank == 0
        draft = checkpoint.CheckpointDraft(self.context.folder, update) if leads else None
        for part in self.parts:
            state = self.strategy.state(part)
            if draft:
                draft.add("model", canonical(state))
        for part in self.parts:
            moments = self.strategy.optimizer_state(self.optimizer, part)
            if draft:
                found = {key: canonical(tensors) for key, tensors in moments.items()}
                draft.add("optimizer", checkpoint.flat(found))
        if draft:
            draft.finish(progress, wait=wait)
            self.context.checkpointed()

    def load(self) -> Mapping[str, Any] | None:
        """Load the newest sound checkpoint and return its progress; None if there is none."""
        damaged: list[str] = []
        leads = self.context.rank == 0
        found = checkpoint.load(self.context.folder, damaged) if leads else None
        if damaged:
            self.context.details["damaged_checkpoints"] = damaged
        progress: Mapping[str, Any] | None = value_of_rank_0(found.progress if found else None)
        if progress is None:
            return None
        native = self.workload.native
        self.strategy.load(native(found.model) if found else {})
        moments = {k: native(tensors) for k, tensors in found.optimizer.items()} if found else {}
        self.strategy.load_optimizer_state(self.optimizer, moments)
        return progress
