"""The median rule (Golovin et al., "Google Vizier", KDD 2017)."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from automl.core import Trial

from ._options import check_least, check_positive
from ._ranking import LossVector, best_losses, losses_at, progress, ranked
from ._warmup import WarmUp
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
        self._min_trials = check_least(self.name, "trials", trials, 1)
        self._curves: dict[int, tuple[list[float], list[LossVector | None]]] = {}
        self._warmup = WarmUp(self.goals, end=check_positive(self.name, "grace", grace))

    def observe(self, trial: Trial) -> None:
        """Keep the best losses so far at each report of the trial."""
        self._warmup.observe(trial)
        ats, losses = self._curves.setdefault(trial.number, ([], []))
        if len(ats) == len(trial.reports) - 1:  # one more report
            metrics = [p.metrics for p in trial.reports]
            ats.append(progress(trial.reports[-1], self.goals))
            losses.append(best_losses(metrics, self.goals, self.constraints))
        elif len(ats) != len(trial.reports):
            ats[:] = [progress(p, self.goals) for p in trial.reports]
            losses[:] = [losses_at(trial, at, self.goals, self.constraints) for at in ats]

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Stop below the median."""
        ats, losses = self._curves[trial.number]
        mine = losses[-1]
        if len(ats) < MIN_REPORTS or mine is None or ats[-1] < self._warmup.end:
            return CONTINUE
        newest = (self._at(n, ats[-1]) for n in reversed(self._curves) if n != trial.number)
        others = list(islice((there for there in newest if there is not None), MAX_COMPARED))
        place = ranked([*others, mine]).index(len(others))
        if len(others) < self._min_trials or place <= len(others) / 2:
            return CONTINUE
        return Decision(
            "stop", f"median: {place} of {len(others)} trials were better at {ats[-1]:g}"
        )

    def _at(self, number: int, at: float) -> LossVector | None:
        ats, losses = self._curves[number]
        place = bisect_left(ats, at)
        return losses[place] if place < len(ats) else None
