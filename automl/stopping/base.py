"""The face of every stopping rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from automl.goals import Constraint, Goal
from automl.trial import Trial


@dataclass(frozen=True)
class Decision:
    """What happens to a running trial, and why, for the ledger."""

    action: Literal["continue", "stop", "pause"]
    reason: str = ""


CONTINUE = Decision("continue")


class Stopper(ABC):
    """Decides after each report whether a running trial goes on; a function of its arguments, keeps no state."""

    name: ClassVar[str]

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint] = (), *, seed: int = 0) -> None:
        self.goals, self.constraints, self.seed = tuple(goals), tuple(constraints), seed

    @abstractmethod
    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Whether `trial`, whose newest report has just come, goes on, stops or pauses; trial 0 is never asked about.

        Args:
            trial: the running trial with all of its reports; trials: every trial of the sweep, by number.
        """

    def resume(self, trials: Sequence[Trial]) -> tuple[int, str] | None:
        """The number of a paused trial that should get the next free slot before a new one, and why; or None."""
        return None
