"""What a page needs of every trial, as plain columns: no look at all trials for each answer."""

from __future__ import annotations

import math
from collections import Counter

from automl.core import Snapshot, Trial
from automl.core.trial import TrialState


class Standings:
    """The values, losses, states and seconds of the trials of a sweep, by number.

    Attributes:
        values: of each trial, one for each goal; None without one.
        losses: of the first goal; infinite without a value.
    """

    def __init__(self) -> None:
        self.values: list[tuple[float | None, ...]] = []
        self.losses: list[float] = []
        self._states: list[str] = []
        self._finished: list[bool] = []
        self._seconds: list[float] = []
        self._ended: list[float] = []

    def take(self, trial: Trial, snapshot: Snapshot) -> None:
        """Note a trial that is new or has changed; new ones come in order of their numbers."""
        values = tuple(snapshot.value(trial, index) for index in range(len(snapshot.goals)))
        loss = math.inf if values[0] is None else snapshot.goals[0].loss(values[0])
        number = trial.number
        self.values[number : number + 1] = [values]
        self.losses[number : number + 1] = [loss]
        self._states[number : number + 1] = [str(trial.state)]
        self._finished[number : number + 1] = [trial.state.finished]
        self._seconds[number : number + 1] = [trial.seconds]
        self._ended[number : number + 1] = [trial.ended or 0.0]

    def best(self) -> int | None:
        """Number of the best trial by the first goal; None if none has a value."""
        least = min(self.losses, default=math.inf)
        return None if least == math.inf else self.losses.index(least)

    def states(self) -> Counter[str]:
        """Number of trials in each state."""
        return Counter(self._states)

    def in_state(self, state: TrialState) -> list[int]:
        """Numbers of the trials in a state."""
        word = str(state)
        return [number for number, found in enumerate(self._states) if found == word]

    def trajectory(self) -> list[float]:
        """The lowest loss after each finished trial that has one, in order of their ends."""
        ended = sorted(
            (self._ended[number], number)
            for number, finished in enumerate(self._finished)
            if finished and self.losses[number] < math.inf
        )
        found: list[float] = []
        for _, number in ended:
            found.append(min(self.losses[number], found[-1] if found else math.inf))
        return found

    def share(self, snapshot: Snapshot) -> float | None:
        """The share of the budget that is used; None without a limit."""
        share = snapshot.budget.spent(sum(self._finished), snapshot.seconds, sum(self._seconds))
        return None if share is None else min(share, 1.0)
