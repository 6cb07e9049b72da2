"""The ranks of a trial agree before each update on the next action."""

import time
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from workers.context import Context
from workers.device.peak_memory import PeakMemory
from workers.parallel.mesh import side_group
from workers.protocol import StopRequest

_REQUESTS = tuple(StopRequest)
_MEMORY_SECONDS = 0.2


@dataclass(frozen=True)
class Orders:
    """What to do before the next update.

    Args:
        stop: ends the attempt, with a checkpoint.
        finish: a limit is reached: the attempt is complete.
        out_of_memory: a rank has exceeded its limit.
        loss: mean loss of the last update over all ranks.
        scale: factor on the learning rate.
    """

    stop: StopRequest | None = None
    finish: bool = False
    evaluate: bool = False
    save: bool = False
    out_of_memory: bool = False
    loss: float = 0.0
    scale: float = 1.0


class Control:
    """One small all-reduce on the CPU per update, so that no rank acts alone."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.group = side_group() if context.world_size > 1 else None
        self._memory_checked = 0.0

    def agree(self, own: Orders, loss: float | None) -> Orders:
        """The same orders on every rank.

        Rank 0 decides, but any rank can stop the attempt or report that it is out of memory.

        Args:
            own: the orders that this rank would follow alone.
            loss: this rank's share of the last update's mean loss.
        """
        share = loss or 0.0
        if self.group is None:
            return replace(own, loss=share)
        leads = self.context.rank == 0
        flags = [
            leads and own.finish,
            leads and own.evaluate,
            leads and own.save,
            own.out_of_memory,
        ]
        requests = [own.stop is request for request in _REQUESTS]
        scale = own.scale if leads else 0.0
        votes = torch.tensor(
            [share, scale, *map(float, flags), *map(float, requests)], dtype=torch.float64
        )
        dist.all_reduce(votes, group=self.group)
        total, scale, *counts = votes.tolist()
        finish, evaluate, save, exceeded = (count > 0 for count in counts[:4])
        stops = (r for r, count in zip(_REQUESTS, counts[4:], strict=True) if count > 0)
        return Orders(next(stops, None), finish, evaluate, save, exceeded, total, scale)

    def memory_exceeded(self, memory: PeakMemory) -> bool:
        """Whether this rank's peak exceeds its limit; measured at most every 0.2 s."""
        limit = self.context.assignment.limits.memory_bytes
        now = time.monotonic()
        if limit is None or now - self._memory_checked < _MEMORY_SECONDS:
            return False
        self._memory_checked = now
        return memory.bytes() > limit
