"""Measures the speed of a function or a program by the time between its reports."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from search_spaces.errors import TrialFailure


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
        timed = _TimedTrial(trial, self._num_windows)
        try:
            self._objective(timed)
        except _Enough:
            pass
        else:
            trial.check_stop()
        if not timed.speeds:
            raise TrialFailure(
                "missing_metric",
                "speed is the time between two reports of increasing steps, and there were none: "
                "call trial.report(step, ...) in the training loop",
            )
        return {"items_per_second": median(timed.speeds)}


class _Enough(BaseException):
    """Ends the objective, which must not catch it as an error of its own."""


class _TimedTrial:
    """A trial whose reports are timed; everything else is the trial's own."""

    def __init__(self, trial: Any, num_windows: int) -> None:
        self._trial = trial
        self._num_windows = num_windows
        self._last: tuple[int, float] | None = None
        self.speeds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)

    def report(self, step: int, **metrics: Any) -> bool:
        """See `Context.report`; the metrics are ignored, and microbatches count as updates."""
        loop = self._trial.loop
        return self._seen(int(step) if loop is None else loop.step_of(int(step)))

    def emit(self, step: int, metrics: Mapping[str, Any], seconds: float) -> bool:
        """See `Context.emit`; the metrics are ignored."""
        return self._seen(int(step))

    def _seen(self, step: int) -> bool:
        now = time.perf_counter()
        if self._last is None:
            self._last = (step, now)
            return self._trial.stop_requested() is None
        before, then = self._last
        if step <= before:
            return True
        self._last = (step, now)
        self.speeds.append((step - before) / max(now - then, 1e-9))
        goes_on: bool = self._trial.report(step, items_per_second=self.speeds[-1])
        if len(self.speeds) >= self._num_windows:
            raise _Enough
        return goes_on
