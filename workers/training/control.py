"""A clock of training seconds, what is due by it, and what the ranks of a trial agree to do."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.distributed as dist

from workers.protocol import StopRequest
from workers.ranks.process_group import side_group

_REQUESTS = tuple(StopRequest)


@dataclass
class Clock:
    """Sums the seconds inside `with clock:`, added to the seconds of earlier attempts.

    Args:
        previous: seconds of earlier attempts.
        spent: seconds of this attempt.
    """

    previous: float = 0.0
    spent: float = 0.0

    def __enter__(self) -> Self:
        self._entered = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.spent += time.perf_counter() - self._entered

    @property
    def total(self) -> float:
        """Seconds of all attempts."""
        return self.previous + self.spent


@dataclass
class Window:
    """Sums over the updates since the last report.

    Args:
        begun: training seconds of all attempts when the window began.
        updates, items: their numbers since then; losses: sum of their mean losses.
    """

    begun: float = 0.0
    updates: int = 0
    items: float = 0.0
    losses: float = 0.0

    def metrics(self, now: float) -> dict[str, float]:
        """Mean loss and speed, where `now` is in training seconds; empty before an update."""
        if not self.updates:
            return {}
        seconds = max(now - self.begun, 1e-9)
        return {
            "train_loss": self.losses / self.updates,
            "items_per_second": self.items / seconds,
            "seconds_per_update": seconds / self.updates,
        }


@dataclass(frozen=True)
class Orders:
    """What to do before the next update.

    Args:
        stop: ends the attempt, with a checkpoint.
        finish: a limit is reached: the attempt is complete.
        out_of_memory: a rank has exceeded its limit.
    """

    stop: StopRequest | None = None
    finish: bool = False
    evaluate: bool = False
    save: bool = False
    out_of_memory: bool = False


def agreed(own: Orders, losses: Sequence[float]) -> tuple[Orders, list[float]]:
    """The same orders on every rank, by one small all-reduce on the CPU, so that none acts alone.

    Rank 0 decides, but any rank can stop the attempt or report that it is out of memory.

    Args:
        own: the orders that this rank would follow alone.
        losses: this rank's shares of the mean losses of updates, as many on every rank.

    Returns:
        The orders, and the mean losses over all ranks.
    """
    decides = not dist.is_initialized() or dist.get_rank() == 0
    stops = [own.stop is request for request in _REQUESTS]
    flags = [decides and own.finish, decides and own.evaluate, decides and own.save]
    found = summed([*map(float, (*stops, *flags, own.out_of_memory)), *losses])
    given = [count > 0 for count in found[: len(stops) + 4]]
    stop = next((r for r, asked in zip(_REQUESTS, given, strict=False) if asked), None)
    return Orders(stop, *given[len(stops) :]), found[len(given) :]


def summed(numbers: Sequence[float]) -> list[float]:
    """The sum of each number over all ranks."""
    tensor = torch.tensor(numbers, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(tensor, group=side_group())
    found: list[float] = tensor.tolist()
    return found
