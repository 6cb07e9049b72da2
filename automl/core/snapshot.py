"""A sweep at one moment, as the live view, `automl status` and the report show it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import ranking
from .budget import Budget
from .goals import Constraint, Goal
from .spec import SweepSpec
from .trial import Trial, TrialState


@dataclass(frozen=True)
class Snapshot:
    """The present state of a sweep.

    Args:
        sweep: its name.
        state: "running", "finished", "interrupted" or "failed".
        seconds: wall-clock seconds of the sweep so far, including earlier runs.
        num_slots, busy_slots: of the workers; 0 if no controller runs.
        suggesting: activity of the suggester ("idle", "suggesting", "2 ready").
        waits_for: for whom the sweep waits, such as "waits for 2 cores held by sweep 'nmt', process
            4711"; "" if it does not.
        suggestion_seconds: how long each suggestion took.
        dashboard: address of the Ray dashboard, "" if there is none.
        spec: of the sweep; None if it is not known.
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
    waits_for: str = ""
    suggestion_seconds: Sequence[float] = ()
    dashboard: str = ""
    spec: SweepSpec | None = None

    @property
    def best(self) -> Trial | None:
        """The best trial so far by the first goal; None if none has succeeded."""
        return ranking.best(self.trials, self.goals, self.constraints)

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals, by number."""
        return ranking.pareto(self.trials, self.goals, self.constraints)

    def in_state(self, *states: TrialState) -> list[Trial]:
        """The trials that are in one of these states."""
        return [trial for trial in self.trials if trial.state in states]
