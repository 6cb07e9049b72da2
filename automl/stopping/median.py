"""The median rule (Golovin et al., "Google Vizier: A service for black-box optimization", KDD 2017)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from automl.core.trial import Trial

from ._informative import Informative
from ._merit import Merit, merit, merit_at, progress, ranked
from .base import CONTINUE, Decision, Stopper

LEAST_TRIALS: Final = 5  # that have come as far, before anything is stopped
LEAST_REPORTS: Final = 2
MOST_COMPARED: Final = 200


class MedianStopper(Stopper):
    """Stops a trial whose best so far is worse than the median of what the others had when they were as far.

    A configuration that breaks a constraint is worse than any that does not; with several goals a trial is stopped
    where half of the others come before it in non-dominated sorting.
    """

    name = "median"

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._curves: dict[int, tuple[list[float], list[Merit | None]]] = {}
        self._informative = Informative(self.goals)

    def observe(self, trial: Trial) -> None:
        """Keep the trial's running merit at each of its reports."""
        self._informative.observe(trial)
        ats, merits = self._curves.setdefault(trial.number, ([], []))
        if len(ats) == len(trial.reports) - 1:  # one more
            metrics = [p.metrics for p in trial.reports]
            ats.append(progress(trial.reports[-1], self.goals))
            merits.append(merit(metrics, self.goals, self.constraints))
        elif len(ats) != len(trial.reports):
            ats[:] = [progress(p, self.goals) for p in trial.reports]
            merits[:] = [merit_at(trial, at, self.goals, self.constraints) for at in ats]

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Stop below the median."""
        ats, merits = self._curves[trial.number]
        mine = merits[-1]
        if len(ats) < LEAST_REPORTS or mine is None or ats[-1] < self._informative.since:
            return CONTINUE
        others: list[Merit] = []
        for number in reversed(self._curves):
            there = self._at(number, ats[-1]) if number != trial.number else None
            if there is not None:
                others.append(there)
            if len(others) == MOST_COMPARED:
                break
        if len(others) < LEAST_TRIALS:
            return CONTINUE
        place = ranked([*others, mine]).index(len(others))
        if place <= len(others) / 2:
            return CONTINUE
        return Decision(
            "stop", f"median: {place} of {len(others)} trials were better at {ats[-1]:g}"
        )

    def _at(self, number: int, at: float) -> Merit | None:
        ats, merits = self._curves[number]
        place = bisect_left(ats, at)
        return merits[place] if place < len(ats) else None
