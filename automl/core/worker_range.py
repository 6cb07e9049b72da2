"""How many workers a sweep has: a number, or a range in which they come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError

from .arguments import WrongValue
from .keys import Kind, key, keys_of, read_keys, whole
from .resources import MAX_SLOTS

COUNT: Final = whole(1, MAX_SLOTS)


@dataclass(frozen=True)
class WorkerRange:
    """The least and the most workers, one per slot.

    Raises:
        UsageError: `min` exceeds `max`.
    """

    min: int = key(COUNT, "Slots that are asked for all the time.", "min: 2")
    max: int = key(COUNT, "Slots that are asked for while trials wait.", "max: 64")

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise UsageError(f"min of workers must not exceed max, got {self.min} and {self.max}")

    @property
    def elastic(self) -> bool:
        """Whether the number may change by itself."""
        return self.min < self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}" if self.elastic else str(self.max)


def read_workers(workers: Any, name: str = "workers") -> WorkerRange | None:
    """The range of a number or of a mapping of `min` and `max`; None for None.

    Raises:
        UsageError: it is malformed.
    """
    if workers is None or isinstance(workers, WorkerRange):
        return workers
    if isinstance(workers, Mapping):
        bounds = read_keys(keys_of(WorkerRange), workers, name)
        if len(bounds) < 2:
            raise WrongValue(name, "a mapping of min and max", dict(workers))
        return WorkerRange(**bounds)
    number = COUNT.read(name, workers)
    return WorkerRange(number, number)


WORKERS: Final = Kind(
    f"{COUNT.words} or mapping", lambda name, value: read_workers(value, name), keys_of(WorkerRange)
)
