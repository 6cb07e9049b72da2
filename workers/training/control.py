"""A clock of training seconds, what is due by it, and what the ranks of a trial agree to do."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.distributed as dist

from workers.context import Context
from workers.protocol import StopRequest
from workers.ranks.process_group import side_group

_REQUESTS = tuple(StopRequest)
_DELAY_SECONDS = 0.2  # ranks act on a request or a limit of time about so late
_MAX_INTERVAL = 50  # updates


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


@dataclass(frozen=True)
class Every:
    """An interval of training seconds or updates, whichever ends first; None for no limit."""

    seconds: float | None = None
    updates: int | None = None

    def due(self, seconds: float, updates: int = 0) -> bool:
        """Whether the interval is over after this many seconds and updates."""
        if self.seconds is not None and seconds >= self.seconds:
            return True
        return self.updates is not None and updates >= self.updates


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

    def count(self, items: float) -> None:
        """Count an update; its loss is added once the ranks have summed it."""
        self.updates += 1
        self.items += items

    def items_per_second(self, now: float) -> float:
        """Speed since the window began; `now` is in training seconds."""
        return self.items / max(now - self.begun, 1e-9)

    def metrics(self, now: float) -> dict[str, float]:
        """Mean loss and speed; empty before the first update."""
        if not self.updates:
            return {}
        seconds = max(now - self.begun, 1e-9)
        return {
            "train_loss": self.losses / self.updates,
            "items_per_second": self.items_per_second(now),
            "seconds_per_update": seconds / self.updates,
        }


@dataclass(frozen=True)
class Orders:
    """What to do before the next update.

    Args:
        stop: ends the attempt, with a checkpoint.
        finish: a limit is reached: the attempt is complete.
        out_of_memory: a rank has exceeded its limit.
        losses: mean losses over all ranks of the updates since ranks agreed last.
    """

    stop: StopRequest | None = None
    finish: bool = False
    evaluate: bool = False
    save: bool = False
    out_of_memory: bool = False
    losses: tuple[float, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether anything but the next update is to be done."""
        return bool(self.stop or self.finish or self.evaluate or self.save)


class Control:
    """One small all-reduce on the CPU every few updates, so that no rank acts alone.

    Ranks meet so often that about 0.2 s pass in between, and at every update of which all of them
    know that something is to be done.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.group = side_group() if context.world_size > 1 else None
        self._left = 0  # updates until ranks meet again
        self._since = 0  # updates since they met
        self._met = time.monotonic()

    def due(self, known: bool) -> bool:
        """Whether ranks agree before this update: the same on every rank.

        Args:
            known: every rank knows that something is to be done now.
        """
        if self.group is None or known or self._left <= 0:
            return True
        self._left -= 1
        self._since += 1
        return False

    def meet_next(self) -> None:
        """Let ranks agree before the next update; all ranks call it."""
        self._left = 0

    def agree(self, own: Orders, losses: Sequence[float]) -> Orders:
        """The same orders on every rank.

        Rank 0 decides, but any rank can stop the attempt or report that it is out of memory.

        Args:
            own: the orders that this rank would follow alone.
            losses: this rank's shares of the mean losses of updates, as many on every rank.
        """
        if self.group is None:
            return replace(own, losses=tuple(losses))
        leads = self.context.rank == 0
        flags = [
            leads and own.finish,
            leads and own.evaluate,
            leads and own.save,
            own.out_of_memory,
        ]
        requests = [own.stop is request for request in _REQUESTS]
        interval = float(self._interval()) if leads else 0.0
        interval, *counts = self.sums([interval, *map(float, [*flags, *requests]), *losses])
        self._left = int(interval) - 1
        self._since = 1
        self._met = time.monotonic()
        finish, evaluate, save, exceeded = (count > 0 for count in counts[:4])
        counts = counts[4:]
        stops = (r for r, count in zip(_REQUESTS, counts, strict=False) if count > 0)
        means = tuple(counts[len(_REQUESTS) :])
        return Orders(next(stops, None), finish, evaluate, save, exceeded, means)

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each number over all ranks."""
        summed = torch.tensor(numbers, dtype=torch.float64)
        if self.group is not None:
            dist.all_reduce(summed, group=self.group)
        found: list[float] = summed.tolist()
        return found

    def _interval(self) -> int:
        """In how many updates ranks are to meet again, by the time that the last ones took."""
        if not self._since:
            return 1
        each = (time.monotonic() - self._met) / self._since
        return max(1, min(_MAX_INTERVAL, int(_DELAY_SECONDS / max(each, 1e-6))))
