"""How the trials of a sweep stand: their values and outcomes, kept up to date trial by trial."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate
from typing import Final

from .snapshot import Snapshot
from .trial import Trial, TrialState

INFEASIBLE: Final = "infeasible"  # the outcome of a trial that has ended and violates a constraint


class Standings:
    """The values and outcomes of the trials of a sweep, by number.

    Attributes:
        values: of each trial, one for each goal; None without one.
        outcomes: of each trial: its state, or `INFEASIBLE`.
    """

    def __init__(self) -> None:
        self.values: list[tuple[float | None, ...]] = []
        self.outcomes: list[str] = []
        self._losses: list[float] = []
        self._ended: list[float] = []  # infinite if it has not ended

    @classmethod
    def of(cls, snapshot: Snapshot) -> Standings:
        """Those of every trial of a sweep."""
        standings = cls()
        standings.follow(snapshot)
        return standings

    def follow(self, snapshot: Snapshot) -> None:
        """Note what has changed; the first time that is every trial."""
        for trial in snapshot.changed if self.values else snapshot.trials:
            self.take(trial, snapshot)

    def take(self, trial: Trial, snapshot: Snapshot) -> None:
        """Note a trial that is new or has changed; new ones come in order of their numbers."""
        values = tuple(snapshot.value(trial, index) for index in range(len(snapshot.goals)))
        loss = math.inf if values[0] is None else snapshot.goals[0].loss(values[0])
        ended = (trial.ended or 0.0) if trial.state.finished else math.inf
        kept = all(constraint.holds(trial.metrics) for constraint in snapshot.constraints)
        is_ended = trial.state in (TrialState.COMPLETED, TrialState.STOPPED)
        outcome = INFEASIBLE if is_ended and loss == math.inf and not kept else str(trial.state)
        number = trial.number
        self.values[number : number + 1] = [values]
        self.outcomes[number : number + 1] = [outcome]
        self._losses[number : number + 1] = [loss]
        self._ended[number : number + 1] = [ended]

    def best(self) -> int | None:
        """Number of the best trial by the first goal; None if none has a value."""
        least = min(self._losses, default=math.inf)
        return None if least == math.inf else self._losses.index(least)

    def counts(self) -> Counter[str]:
        """Number of trials of each outcome."""
        return Counter(self.outcomes)

    def numbers(self, state: TrialState) -> list[int]:
        """Numbers of the trials in a state."""
        return [number for number, found in enumerate(self.outcomes) if found == state]

    def trajectory(self) -> list[float]:
        """The lowest loss after each finished trial that has one, in order of their ends."""
        both = zip(self._ended, range(len(self._ended)), self._losses, strict=True)
        ended = sorted(one for one in both if max(one[0], one[2]) < math.inf)
        return list(accumulate((loss for _, _, loss in ended), min))
