"""The budget of a sweep: when it ends, and how a person writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from automl.errors import UsageError

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
    if isinstance(budget, str | int | float):
        budget = Budget(time=parse_duration(budget))
    elif isinstance(budget, Mapping):
        unknown = set(budget) - set(vars(Budget()))
        if unknown:
            raise UsageError(
                "a budget has trials, time, worker_time, target and gain, "
                f"got {', '.join(sorted(unknown))}"
            )
        times = {
            key: parse_duration(budget[key])
            for key in ("time", "worker_time")
            if budget.get(key) is not None
        }
        budget = Budget(**{**budget, **times})
    budget = budget or Budget()
    if trials is not None:
        budget = replace(budget, trials=trials)
    if budget.trials is not None and (isinstance(budget.trials, bool) or budget.trials < 1):
        raise UsageError(f"trials must be a whole number of at least 1, got {budget.trials!r}")
    if replace(budget, gain=None) == Budget():
        raise UsageError(
            "a sweep needs an end: give trials=, or budget= with a duration such as '10m'"
        )
    return budget
