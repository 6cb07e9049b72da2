"""Slots whose GPU fails again and again are taken out of use."""

from collections.abc import Callable, Iterable
from typing import Final

from automl.errors import AutomlError

MAX_FAILURES: Final = 3  # of the GPU of one slot, in a row


class SlotHealth:
    """Counts the failures of each slot's GPU.

    A GPU that cannot be used when a worker starts is broken. One that fails during a trial may be
    broken, or the trial made an error that spoils the worker's CUDA context. So such a slot is only
    taken out of use if the last trial of another slot left its GPU in order.

    Args:
        slots: the numbers of all slots of the sweep, now.

    Attributes:
        quarantined: the problem of each slot that is out of use.
    """

    def __init__(self, slots: Callable[[], Iterable[int]]) -> None:
        self._slots = slots
        self._failures: dict[int, int] = {}  # in a row, of slots that have run or failed
        self.quarantined: dict[int, str] = {}

    def start_failed(self, slot: int, problem: str) -> bool:
        """The worker of a slot has started, and its GPU cannot be used.

        Returns:
            Whether the slot is out of use from now on; else its worker is to be replaced.

        Raises:
            AutomlError: no slot is left.
        """
        return self._count(slot) and self._quarantine(slot, problem)

    def attempt_ended(self, slot: int, problem: str) -> bool:
        """An attempt on a slot has ended.

        Args:
            slot: of the attempt.
            problem: of the GPU since then; "" if there is none.

        Returns:
            Whether the slot is out of use from now on.
        """
        if not problem:
            self._failures[slot] = 0
            return False
        others = (self._failures.get(other) == 0 for other in self._in_use() if other != slot)
        return self._count(slot) and any(others) and self._quarantine(slot, problem)

    def forget(self, slot: int) -> None:
        """A slot is gone; another one may get its number."""
        self._failures.pop(slot, None)
        self.quarantined.pop(slot, None)

    @property
    def trouble(self) -> str:
        """The slots that are out of use, for a person; "" if there are none."""
        return "; ".join(
            f"worker {slot} is out of use, since its GPU failed {MAX_FAILURES} times in a row: "
            f"{problem}"
            for slot, problem in self.quarantined.items()
        )

    def _in_use(self) -> Iterable[int]:
        return (slot for slot in self._slots() if slot not in self.quarantined)

    def _count(self, slot: int) -> bool:
        self._failures[slot] = self._failures.get(slot, 0) + 1
        return self._failures[slot] >= MAX_FAILURES

    def _quarantine(self, slot: int, problem: str) -> bool:
        self.quarantined[slot] = problem
        if not any(True for _ in self._in_use()):
            raise AutomlError(
                f"no GPU of the sweep can be used: {self.trouble}. Look at the GPUs with "
                "`nvidia-smi`; the sweep can be resumed"
            )
        return True
