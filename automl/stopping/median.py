"""The median rule (Golovin et al., "Google Vizier", KDD 2017)."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from automl.core import Trial

from ._curves import TrialCurves, WarmUp, ranked
from .base import CONTINUE, Decision, Stopper

MIN_REPORTS: Final = 2
MAX_COMPARED: Final = 200


class MedianStopper(Stopper):
    """Stops a trial if its best so far is worse than the median of the others at its progress.

    A trial that violates a constraint is worse than any that does not. With several goals a trial
    stops if half of the others are before it in non-dominated sorting.

    Args:
        grace: progress below which nothing is stopped: steps, or seconds if a goal has a time
            limit; None to learn it (`WarmUp`).
        trials: others that reached the same progress, before a trial is stopped.

    Raises:
        UsageError: an option is out of its range.
    """

    name = "median"

    def __init__(
        self, *args: Any, grace: float | None = None, trials: int = 5, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._min_trials = self.checked("trials", trials, "at least 1", trials >= 1)
        self._curves: dict[int, TrialCurves] = {}
        self._warmup = WarmUp(self.goals, end=self.checked_grace(grace))

    def observe(self, trial: Trial) -> None:
        self._warmup.observe(trial)
        self._curves[trial.number] = TrialCurves(trial, self.goals, self.constraints)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        curve = self._curves[trial.number]
        mine, at = curve.losses(curve.count - 1), curve.at(curve.count - 1)
        if curve.count < MIN_REPORTS or mine is None or at < self._warmup.end:
            return CONTINUE
        newest = (
            curve.losses_at(at)
            for number, curve in reversed(self._curves.items())
            if number != trial.number
        )
        others = list(islice((there for there in newest if there is not None), MAX_COMPARED))
        place = ranked([mine, *others]).index(0)  # of equal ones it is the first
        if len(others) < self._min_trials or place <= len(others) / 2:
            return CONTINUE
        return Decision("stop", f"median: {place} of {len(others)} trials were better at {at:g}")
