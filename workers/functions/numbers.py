"""What a metric may be, whoever reports, returns or tells it; and the speed between two reports."""

import functools
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final, TypeVar, cast

from search_spaces.errors import TrialFailure
from workers.failures import MAX_NAME, described

F = TypeVar("F", bound=Callable[..., Any])
MAX_METRICS: Final = 10_000  # of a report or result
# The controller computes with these metrics, so they are from 0 to this.
LARGEST: Final[Mapping[str, float]] = {
    "seconds": 1e10,
    "peak_memory_bytes": 2.0**60,
    "estimated_memory_bytes": 2.0**60,
}


class WrongReturn(TrialFailure):
    """An objective has returned what can be no result: every trial will."""

    shown_traceback = ""  # the message says it all; the frames are ours


def number_of(value: Any) -> float:
    """A number, or an array or tensor of one element, as a float.

    Raises:
        TypeError, ValueError: it is neither; a text is not a number, even if it reads like one.
    """
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"a text is not a number: {reprlib.repr(value)}")
    return float(value.item() if hasattr(value, "item") else value)


def explained(report: F) -> F:
    """A method `report(step, **metrics)` that explains a wrong call.

    `report(value, step)`, as Optuna has it, is the value of the first goal.
    """

    @functools.wraps(report)
    def checked(trial: Any, *given: Any, **metrics: Any) -> Any:
        steps = given = (*given, metrics.pop("step")) if "step" in metrics else given
        name = next(iter(trial.assignment.goals), "loss")
        if len(steps) == 2 and not metrics:
            metrics, steps = {name: steps[0]}, steps[1:]
        elif list(metrics) == ["value"] and len(trial.assignment.goals) == 1:
            metrics = {name: metrics["value"]}
        if len(steps) == 1 and (step := _whole(steps[0])) is not None:
            return report(trial, step, **metrics)
        raise TypeError(
            "the step, a whole number, comes first, and a metric has a name: trial.report(step, "
            f"{name}=value); got trial.report({', '.join(map(described, given))})"
        )

    return cast(F, checked)


def _whole(step: Any) -> int | None:
    """A step as an integer, if it is a whole number of 64 bits, also of NumPy or torch."""
    try:
        number = int(step)
        return number if number == step and -(2**63) <= number < 2**63 else None
    except Exception:  # of any kind, from a type of the objective
        return None


def numbers_of(metrics: Mapping[Any, Any]) -> dict[str, float]:
    """Metrics with each value as a float.

    Raises:
        TrialFailure: a value is not a number or beyond `LARGEST`, or there are too many or too long
            names ("missing_metric").
    """
    count, numbers = len(metrics), dict[str, float]()
    _check(count <= MAX_METRICS, f"at most {MAX_METRICS:,} metrics are kept, got {count:,}")
    for key, value in metrics.items():
        name = str(key)
        _check(
            len(name) <= MAX_NAME,
            f"a metric's name has at most {MAX_NAME} characters, got {len(name):,}",
        )
        try:
            numbers[name] = number = number_of(value)
        except Exception as error:  # of any kind, from a type of the objective
            raise TrialFailure(
                "missing_metric",
                f"metric {name!r} must be a number, got {described(value)}; "
                "`trial.set_user_attr` keeps other facts",
            ) from error
        _check(
            name not in LARGEST or 0 <= number <= LARGEST[name],
            f"metric {name!r} must be a number from 0 to {LARGEST.get(name, 0):.3g}, got "
            f"{number:g}; if it means something else, give it another name",
        )
    return numbers


def _check(right: bool, said: str) -> None:
    if not right:
        raise TrialFailure("missing_metric", said)


def returned(result: Any, goals: Sequence[str]) -> dict[str, float]:
    """The metrics that an objective has returned.

    Args:
        result: a mapping of numbers, None for no metrics, a tuple of a number for each goal or,
            with one goal that the controller does not measure, the goal's value.
        goals: names of their metrics.

    Raises:
        WrongReturn: it is something else.
    """
    if result is None:
        return {}
    if isinstance(result, tuple | list) and len(result) == len(goals) > 1:
        result = dict(zip(goals, result, strict=True))
    said, own = "", _own(goals)
    try:
        if isinstance(result, Mapping):
            return numbers_of(result)
        if len(own) == 1 and not isinstance(result, bool | list | tuple):
            return numbers_of({own[0]: result})
    except TrialFailure as error:
        said = error.message if isinstance(result, Mapping) else ""
    usual = f"the objective returned {described(result)}. {what_to_return(goals)}"
    raise WrongReturn("missing_metric", said or usual)


def what_to_return(goals: Sequence[str]) -> str:
    """How an objective says the values of its goals."""
    values = {name: name if name.isidentifier() else "value" for name in _own(goals)}
    some = ", ".join(f"{name!r}: {value}" for name, value in values.items()) or "'loss': loss"
    number = (
        f"the number itself (return {', '.join(values.values())}) or " if len(values) == 1 else ""
    )
    return f"Return {number}a dict with a number for each goal: return {{{some}}}"


def _own(goals: Sequence[str]) -> Sequence[str]:
    """The goals without those that the controller measures by itself, if others are left."""
    return [name for name in goals if name not in LARGEST] or goals


class _Enough(BaseException):
    """Ends the objective, which must not catch it as an error of its own."""


class SpeedProbe:
    """An objective that runs another one until its speed is known.

    Args:
        objective: a function or a command that reports steps.
        num_windows: so many times between two reports are measured, at least 1. What comes before
            the first report warms up and is left out.
    """

    def __init__(self, objective: Callable[[Any], Any], num_windows: int) -> None:
        self._objective = objective
        self._num_windows = num_windows

    def __call__(self, trial: Any) -> dict[str, float]:
        """The median of steps per second, as `items_per_second`; `trial` is a `Context`.

        Raises:
            TrialFailure: the objective has reported fewer than two steps.
        """
        emit = trial.emit
        speeds: list[float] = []
        reports: list[tuple[int, float]] = []

        def timed(step: int, metrics: Any, seconds: float | None = None) -> bool:
            before, then = reports[-1] if reports else (step, 0.0)
            if step > before or not reports:
                reports.append((step, time.perf_counter()))
            if step <= before:
                return trial.stop_requested() is None
            speeds.append((step - before) / max(reports[-1][1] - then, 1e-9))
            goes_on: bool = emit(step, {"items_per_second": speeds[-1]}, seconds)
            if len(speeds) >= self._num_windows:
                raise _Enough
            return goes_on

        trial.emit = timed
        with suppress(_Enough):
            self._objective(trial)
            trial.check_stop()
        _check(
            bool(speeds),
            "speed is the time between two reports of increasing steps, and there were none: "
            "call trial.report(step, ...) in the training loop",
        )
        return {"items_per_second": median(speeds)}
