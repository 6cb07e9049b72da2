"""The budget of a sweep: when it ends, and how a person writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from automl.errors import UsageError

from .arguments import finite, shown, whole
from .goals import parse_duration


@dataclass(frozen=True)
class Budget:
    """When a sweep ends: as soon as any of these limits is reached.

    Args:
        trials: number of trials; trial 0 and failed trials count.
        time: wall-clock seconds of the sweep, summed over all of its runs.
        worker_time: seconds summed over slots.
        target: a value of the first goal that is good enough.
        gain: the sweep ends if another trial is expected to improve the goal by less (unit of
            the goal). Only some suggesters can estimate this, such as `bayes`.
    """

    trials: int | None = None
    time: float | None = None
    worker_time: float | None = None
    target: float | None = None
    gain: float | None = None

    def spent(self, trials: float = 0, time: float = 0, worker_time: float = 0) -> float | None:
        """The share that is spent of the limit that ends first, or more than 1; None without one.

        Args:
            trials, time, worker_time: that are used, in the units of the limits.
        """
        limits = (
            (time, self.time),
            (worker_time, self.worker_time),
            (trials, self.trials),
        )
        return max((used / limit for used, limit in limits if limit), default=None)


def read_budget(
    budget: Budget | Mapping[str, Any] | str | float | None, trials: int | None
) -> Budget:
    """Parse a budget as a person writes it.

    Args:
        budget: a `Budget`, a mapping with its fields, or a duration such as "10m".
        trials: if given, replaces the budget's number of trials.

    Raises:
        UsageError: the budget is malformed, or it never ends the sweep.
    """
    if isinstance(budget, str | int | float) and not isinstance(budget, bool):
        budget = Budget(time=parse_duration(budget))
    elif isinstance(budget, Mapping):
        unknown = set(budget) - set(vars(Budget()))
        if unknown:
            raise UsageError(
                "a budget has trials, time, worker_time, target and gain, "
                f"got {', '.join(sorted(map(str, unknown)))}"
            )
        times = {
            key: parse_duration(budget[key])
            for key in ("time", "worker_time")
            if budget.get(key) is not None
        }
        budget = Budget(**{**budget, **times})
    budget = Budget() if budget is None else budget
    if not isinstance(budget, Budget):
        raise UsageError(
            "budget must be a duration such as '10m', or a mapping of trials, time, worker_time, "
            f"target and gain; got {shown(budget)}"
        )
    if trials is not None:
        budget = replace(budget, trials=trials)
    budget = checked_budget(budget)
    if replace(budget, gain=None) == Budget():
        raise UsageError(
            "a sweep needs an end: give trials=, or budget= with a duration such as '10m'"
        )
    return budget


def checked_budget(budget: Budget) -> Budget:
    """The budget with plain numbers; raises UsageError if one is wrong."""
    found: dict[str, Any] = {}
    for name, value in vars(budget).items():
        if value is not None:
            found[name] = whole(name, value, least=1) if name == "trials" else finite(name, value)
    for name in ("time", "worker_time", "gain"):
        if found.get(name, 1.0) <= 0:
            raise UsageError(f"{name} of a budget must be above 0, got {found[name]:g}")
    return Budget(**found)
