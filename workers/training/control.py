"""How the ranks of a trial agree, once an update, on what to do next."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workers.parallel.mesh import side_group
from workers.protocol import Halt

if TYPE_CHECKING:
    from workers.context import Context
    from workers.device.peak_memory import PeakMemory

    from .settings import Settings

_HALTS = tuple(Halt)
_MEMORY_SECONDS = 0.2


@dataclass(frozen=True)
class Orders:
    """What to do before the next update.

    `loss` is the mean loss of the last one over all ranks, `scale` what the learning rate is
    multiplied by.
    """

    halt: Halt | None = None
    finish: bool = False
    evaluate: bool = False
    save: bool = False
    out_of_memory: bool = False
    loss: float = 0.0
    scale: float = 1.0


class Control:
    """One small all-reduce an update, on the CPU, so that no rank acts alone."""

    def __init__(self, context: Context, settings: Settings) -> None:
        self.context = context
        self.group: dist.ProcessGroup | None = None
        if context.world_size > 1:
            self.group = side_group()
        self._looked = 0.0

    def agree(self, wishes: Orders, loss: float | None) -> Orders:
        """The same orders on every rank: rank 0's, except that any rank may halt or have run out of memory.

        Args:
            wishes: what this rank would do.
            loss: this rank's share of the last update's mean loss.
        """
        share = loss or 0.0
        if self.group is None:
            return replace(wishes, loss=share)
        leads = self.context.rank == 0
        flags = [
            leads and wishes.finish,
            leads and wishes.evaluate,
            leads and wishes.save,
            wishes.out_of_memory,
        ]
        halts = [wishes.halt is halt for halt in _HALTS]
        scale = wishes.scale if leads else 0.0
        votes = torch.tensor(
            [share, scale, *map(float, flags), *map(float, halts)], dtype=torch.float64
        )
        dist.all_reduce(votes, group=self.group)
        total, scale, *counts = votes.tolist()
        finish, evaluate, save, exceeded = (count > 0 for count in counts[:4])
        asked = (halt for halt, count in zip(_HALTS, counts[4:], strict=True) if count > 0)
        return Orders(next(asked, None), finish, evaluate, save, exceeded, total, scale)

    def memory_exceeded(self, memory: PeakMemory) -> bool:
        """Whether this rank's peak is beyond its limit; looked at a few times a second."""
        limit, now = self.context.assignment.limits.memory_bytes, time.monotonic()
        if limit is None or now - self._looked < _MEMORY_SECONDS:
            return False
        self._looked = now
        return memory.bytes() > limit
