"""What a sweep may use: its budget, its workers, and the resources of a slot."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.hardware import count_cpus, detect, may_have_gpus
from workers.runtime.devices import named_gpus, slots_on

from .arguments import WrongValue, mapping, parse_duration
from .key_kinds import (
    DURATION,
    NUMBER,
    SIZE,
    Kind,
    at_least,
    key,
    keys_of,
    one_of,
    read_keys,
    whole,
)


@dataclass(frozen=True)
class Budget:
    """When a sweep ends: as soon as any of these limits is reached. Times are in seconds."""

    trials: int | None = key(
        whole(least=1),
        "Number of trials, with trial 0, failed ones and those of earlier runs.",
        "trials: 50",
        None,
        flag="--trials N",
    )
    time: float | None = key(
        DURATION,
        "Wall-clock time of all runs of the sweep, such as 10m or 1h30m.",
        "time: 2h30m",
        None,
        flag="--budget TIME",
    )
    worker_time: float | None = key(
        DURATION, "Time summed over slots, as a cluster bills it.", "worker_time: 40h", None
    )
    target: float | None = key(
        NUMBER, "Value of the first goal that is good enough.", "target: 0.05", None
    )
    until: str | None = key(
        one_of("settled"),
        "`settled`: the sweep ends if `bayes` expects three times in a row that going on improves "
        "the recommendation by less than its standard error. "
        "See [noise](../guides/noise.md#when-to-end).",
        "until: settled",
        None,
    )

    def spent(self, trials: float = 0, time: float = 0, worker_time: float = 0) -> float | None:
        """The share that is spent of the limit that ends first, or more than 1; None without one.

        Args:
            trials, time, worker_time: that are used, in the units of the limits.
        """
        pairs = ((time, self.time), (worker_time, self.worker_time), (trials, self.trials))
        return max((used / limit for used, limit in pairs if limit), default=None)


LIMITS: Final = keys_of(Budget)


def checked_budget(budget: Any, name: str = "budget") -> Budget:
    """The budget that a `Budget` or a mapping of its fields describes.

    Raises:
        UsageError: it is malformed.
    """
    given = vars(budget) if isinstance(budget, Budget) else mapping(name, budget)
    return Budget(**read_keys(LIMITS, given, f"a {name}"))


BUDGET: Final = Kind("mapping", lambda name, value: checked_budget(value, name), LIMITS)


def read_budget(
    budget: Budget | Mapping[str, Any] | str | float | None, **limits: float | None
) -> Budget:
    """The budget of a sweep that must have an end.

    Args:
        budget: a `Budget`, a mapping of its fields, or a duration such as "10m".
        limits: fields that replace the budget's, if they are not None.

    Raises:
        UsageError: the budget is malformed, or it never ends the sweep.
    """
    if isinstance(budget, str | int | float) and not isinstance(budget, bool):
        budget = Budget(time=parse_duration(budget))
    if not isinstance(budget, Budget | Mapping | None):
        rule = f"a duration such as '10m', or a mapping of {', '.join(LIMITS)}"
        raise WrongValue("budget", rule, budget)
    given = {name: value for name, value in limits.items() if value is not None}
    found = replace(checked_budget(budget), **read_keys(LIMITS, given))
    if found == Budget():
        raise UsageError(
            "a sweep needs an end: give trials=, or budget= with a duration such as '10m'"
        )
    return found


MAX_SLOTS: Final = 10_000  # of a sweep, and cores of a slot: more is a slip of the keyboard


def _gpus(name: str, value: Any) -> float:
    gpus: float = at_least(0).read(name, value)
    if gpus > 1 and gpus != int(gpus):
        raise UsageError(
            f"gpus of a slot are a whole number, or a share of one GPU below 1, got {gpus:g}"
        )
    return gpus


MAX_CORES: Final = 16  # of a slot with a GPU, by default: more prepare no batch faster


@dataclass(frozen=True)
class Resources:
    """The resources of one worker slot. Its cores are the threads of a rank; memory is in bytes."""

    cpus: int = key(whole(1, MAX_SLOTS), "Cores.", "cpus: 4", 1)
    gpus: float = key(
        Kind(at_least(0).words, _gpus),
        "GPUs: a whole number, or a share below 1.",
        "gpus: 0.5",
        0.0,
        "1 if this machine has GPUs",
    )
    memory: int | None = key(SIZE, "What a rank may use.", "memory: 8GB", None, "no limit")

    def local_slots(self) -> int:
        """How many such slots this machine has room for, at least 1."""
        slots = count_cpus() // max(1, self.cpus)
        if self.gpus > 0:
            slots = min(slots, slots_on(local_gpus(), self.gpus))
        return max(1, slots)


def local_gpus() -> int:
    """How many GPUs trials of this machine can use; torch is loaded only if there may be any."""
    if not may_have_gpus():
        return 0
    found, named = len(detect().gpus), named_gpus()  # it may have changed since `detect`
    return found if named is None else min(found, len(named))


def given_resources(name: str, value: Any) -> dict[str, Any]:
    """The resources of a slot that a person names; those that they leave out are not in it.

    Raises:
        UsageError: they are malformed.
    """
    given = vars(value) if isinstance(value, Resources) else mapping(name, value)
    return read_keys(keys_of(Resources), given, "a slot")


RESOURCES: Final = Kind("mapping", given_resources, keys_of(Resources))


def slot_resources(
    given: Mapping[str, Any], num_gpus: int, workers: int | None
) -> tuple[Resources, str]:
    """The resources of a slot, with GPUs of its machine if the user does not say how many.

    Args:
        given: `given_resources` of the user.
        num_gpus: of the machine.
        workers: number of slots; None for as many as there is room for.

    Returns:
        The resources, and a line for a person about the choice ("" without one).
    """
    note, gpus = "", given.get("gpus", 1.0 if num_gpus else 0.0)
    if num_gpus and "gpus" not in given:
        if workers and workers > num_gpus:
            gpus = 1 / -(-workers // num_gpus)
        have = "a GPU" if gpus == 1 else f"{gpus:.2g} of a GPU"
        note = f"each worker has {have}; set the resources to `gpus: 0` for trials on the CPU"
    given = {**given, "gpus": gpus}
    if num_gpus and gpus > 0 and "cpus" not in given:  # its part of the machine's cores
        slots = max(slots_on(num_gpus, gpus), workers or 0, 1)
        given["cpus"] = max(1, min(MAX_CORES, count_cpus() // slots))
    return Resources(**given), note


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
