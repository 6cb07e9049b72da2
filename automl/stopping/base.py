"""The face of every stopping rule."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial
from search_spaces import Space
from workers.protocol import Params


@dataclass(frozen=True)
class Decision:
    """What happens to a running trial, and why, for the ledger."""

    action: Literal["continue", "stop", "pause"]
    reason: str = ""


CONTINUE = Decision("continue")


class Stopper(ABC):
    """Decides which trial gets the next slice of a worker's time: a running one, a paused one, or a new one.

    A function of the trials: what it keeps is an index of what it has observed, and a controller that takes a sweep
    up again shows it every trial first.

    Args:
        goals: at least one; constraints: bounds on metrics.
        seed: of everything random.
        space: of the configurations.
        max_steps: the last step of a trial, None where nobody knows.
        can_pause: whether a trial that was paused can go on where it was; a pause is a stop otherwise.

    Attributes:
        spent, seconds_left: of the sweep's budget, kept up to date by the controller: a share from 0 to 1, and seconds
            (infinite where no time is set).
        guided: whether new configurations may be chosen by the stopper's own model (`propose`).
        one_by_one: a new trial is weighed against the paused ones each time, so that proposals are not made in bulk.
    """

    name: ClassVar[str]
    one_by_one: ClassVar[bool] = False

    def __init__(
        self,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        space: Space | None = None,
        max_steps: int | None = None,
        can_pause: bool = True,
    ) -> None:
        self.goals, self.constraints, self.seed = tuple(goals), tuple(constraints), seed
        self.space, self.max_steps, self.can_pause = space, max_steps, can_pause
        self.spent, self.seconds_left, self.guided = 0.0, math.inf, False

    def update_budget(self, spent: float, seconds_left: float) -> None:
        """Note how much of the budget is used; called before each decision."""
        self.spent = spent
        self.seconds_left = seconds_left

    def observe(self, trial: Trial) -> None:
        """A trial is new or has changed; called before anything is asked about it."""
        return

    @abstractmethod
    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Whether `trial`, whose newest report has just come, goes on, stops or pauses; trial 0 is never asked about.

        Args:
            trial: the running trial with all of its reports; trials: every trial of the sweep, by number.
        """

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The number of a paused trial that should get the free slot before a new one, and why; or None.

        Args:
            last: no new trial can be proposed any more; where None is returned and nothing runs, the sweep is over.
        """
        return None

    def propose(self, trials: Sequence[Trial]) -> Params | None:
        """The configuration of the next new trial, where `guided`; None leaves it to the suggester."""
        return None
