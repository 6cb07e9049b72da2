"""How many workers a sweep has: a number, or a range in which they come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from automl.errors import UsageError

from .arguments import shown, whole
from .resources import MAX_SLOTS


@dataclass(frozen=True)
class WorkerRange:
    """The least and the most workers, one per slot.

    Args:
        min: asked for all the time, at least 1.
        max: asked for while trials wait.

    Raises:
        UsageError: a number is out of its range.
    """

    min: int
    max: int

    def __post_init__(self) -> None:
        for name in ("min", "max"):
            number = whole(f"{name} of workers", getattr(self, name), least=1)
            object.__setattr__(self, name, number)
            if number > MAX_SLOTS:
                raise UsageError(f"workers must be at most {MAX_SLOTS}, got {number}")
        if self.min > self.max:
            raise UsageError(f"min of workers must not exceed max, got {self.min} and {self.max}")

    @property
    def elastic(self) -> bool:
        """Whether the number may change by itself."""
        return self.min < self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}" if self.elastic else str(self.max)


def read_workers(workers: Any) -> WorkerRange | None:
    """The range of a number or of a mapping of `min` and `max`; None for None.

    Raises:
        UsageError: it is malformed.
    """
    if workers is None or isinstance(workers, WorkerRange):
        return workers
    if isinstance(workers, Mapping):
        if set(workers) != {"min", "max"}:
            raise UsageError(
                f"workers is a number, or a mapping of min and max, got {shown(dict(workers))}"
            )
        return WorkerRange(workers["min"], workers["max"])
    number = whole("workers", workers, least=1)
    return WorkerRange(number, number)
