"""Measures the speed of a function or a program by the time between its reports."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from search_spaces.errors import TrialFailure


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
        try:
            self._objective(trial)
        except _Enough:
            pass
        else:
            trial.check_stop()
        if not speeds:
            raise TrialFailure(
                "missing_metric",
                "speed is the time between two reports of increasing steps, and there were none: "
                "call trial.report(step, ...) in the training loop",
            )
        return {"items_per_second": median(speeds)}
