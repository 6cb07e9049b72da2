"""Slots whose GPU fails again and again are taken out of use."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from automl.errors import AutomlError

MAX_FAILURES: Final = 3  # of the GPU of one slot, in a row


class SlotHealth:
    """Counts the attempts of each slot that could not use its GPU when they began.

    Each attempt has a process of its own, so what an earlier one did to the GPU is not to blame.

    Args:
        slots: the numbers of all slots of the sweep, now.

    Attributes:
        quarantined: the problem of each slot that is out of use.
    """

    def __init__(self, slots: Callable[[], Iterable[int]]) -> None:
        self._slots = slots
        self._failures: Counter[int] = Counter()  # in a row
        self.quarantined: dict[int, str] = {}

    def attempt_ended(self, slot: int, problem: str) -> bool:
        """An attempt on a slot has ended.

        Args:
            slot: of the attempt.
            problem: of the GPU when it began; "" if there was none.

        Returns:
            Whether the slot is out of use from now on.

        Raises:
            AutomlError: no slot is left.
        """
        self._failures[slot] = self._failures[slot] + 1 if problem else 0
        if self._failures[slot] < MAX_FAILURES:
            return False
        self.quarantined[slot] = problem
        if self.quarantined.keys() >= set(self._slots()):
            raise AutomlError(
                f"no GPU of the sweep can be used: {self.trouble}. Look at the GPUs with "
                "`nvidia-smi`; the sweep can be resumed"
            )
        return True

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
