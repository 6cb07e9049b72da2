"""A sweep at one moment, for whoever looks at it: the live view, `automl status`, the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .goals import Constraint, Goal
from .spec import Budget
from .trial import Trial, TrialState


@dataclass(frozen=True)
class Snapshot:
    """What is known of a sweep now.

    Args:
        sweep: its name; state: "running", "finished", "interrupted" or "failed".
        seconds: wall-clock seconds of the sweep so far, earlier runs counted in.
        num_slots, busy_slots: of the workers; 0 where no controller runs.
        suggesting: what the suggester does now, in words ("idle", "suggesting", "2 ready", "fell back to sobol").
        suggestion_seconds: how long each suggestion took.
    """

    sweep: str
    state: str
    trials: Sequence[Trial]
    goals: tuple[Goal, ...]
    constraints: tuple[Constraint, ...] = ()
    budget: Budget = field(default_factory=Budget)
    seconds: float = 0.0
    num_slots: int = 0
    busy_slots: int = 0
    suggesting: str = "idle"
    suggestion_seconds: Sequence[float] = ()

    def in_state(self, *states: TrialState) -> list[Trial]:
        """The trials that are in one of these states."""
        return [trial for trial in self.trials if trial.state in states]
