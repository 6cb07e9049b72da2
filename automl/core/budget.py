"""The budget of a sweep: when it ends, and how a person writes it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from automl.errors import UsageError

from .arguments import WrongValue, mapping
from .durations import parse_duration
from .keys import DURATION, NUMBER, Kind, above, key, keys_of, one_of, read_keys, whole


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
    gain: float | None = key(
        above(0),
        "Least expected gain of another trial, in the unit of the goal. The sweep ends if `bayes` "
        "expects less three times in a row, after at least ten trials.",
        "gain: 0.001",
        None,
    )
    until: str | None = key(
        one_of("settled"),
        "`settled`: the sweep ends if `bayes` expects three times in a row that going on improves "
        "the recommendation by less than its standard error (or than `gain`, if that is more). "
        "See [noise](../guides/noise.md#when-to-end).",
        "until: settled",
        None,
    )

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


LIMITS: Final = keys_of(Budget)


def checked_budget(budget: Any, name: str = "budget") -> Budget:
    """The budget that a `Budget` or a mapping of its fields describes.

    Raises:
        UsageError: it is malformed.
    """
    given = vars(budget) if isinstance(budget, Budget) else mapping(name, budget)
    return Budget(**read_keys(LIMITS, given, f"a {name}"))


BUDGET: Final = Kind("mapping", lambda name, value: checked_budget(value, name), LIMITS)


def without_unit(budget: Any) -> list[str]:
    """A line about a time without a unit, which may have meant trials; none for other budgets."""
    if isinstance(budget, bool) or not re.fullmatch(r"[0-9.]+", str(budget)):
        return []
    return [f"a budget without a unit is of seconds: {budget}s. A number of trials is `trials`"]


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
    if replace(found, gain=None) == Budget():
        raise UsageError(
            "a sweep needs an end: give trials=, or budget= with a duration such as '10m'"
        )
    return found
