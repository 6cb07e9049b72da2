"""The interface of a stopping rule."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from automl.core import Constraint, Goal, Trial
from automl.errors import UsageError
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain
from search_spaces import Space
from workers.protocol import Params


@dataclass(frozen=True)
class Decision:
    """What happens to a running trial, and the reason for the ledger."""

    action: Literal["continue", "stop", "pause"]
    reason: str = ""


CONTINUE = Decision("continue")


class Stopper(ABC):
    """Decides which trial runs next: a running one, a paused one, or a new one.

    A stopper is a function of the trials: its state is an index of the trials that it observed. A
    controller that resumes a sweep calls `observe` with every trial first.

    Args:
        goals: at least one; constraints: bounds on metrics.
        seed: of everything random.
        space: of the configurations.
        max_steps: the last step of a trial; None if it is not known.
        can_pause: whether a paused trial can resume; if not, a pause is a stop.
        context: the domain and the user's prior, if `propose` chooses new configurations; passed
            only if the class `proposes`.

    Attributes:
        spent: share of the sweep's budget that is used, 0 to 1.
        seconds_left: of the sweep's budget; infinite without a time limit.
        guided: whether `propose` chooses new configurations, that is, there is a context.
        proposes: whether the class can choose them, one at a time, each compared with the paused
            trials; its constructor takes `context`.
    """

    name: ClassVar[str]
    proposes: ClassVar[bool] = False

    def __init__(
        self,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        space: Space | None = None,
        max_steps: int | None = None,
        can_pause: bool = True,
        context: SearchContext | None = None,
    ) -> None:
        self.goals = tuple(goals)
        self.constraints = tuple(constraints)
        self.seed = seed
        self.space = space
        self.max_steps = max_steps
        self.can_pause = can_pause
        self.guided = context is not None
        self.update_budget(0.0, math.inf)

    def checked(self, name: str, value: Any, rule: str, holds: bool) -> Any:
        """The value of an option; raises UsageError if its rule does not hold."""
        if not holds:
            raise UsageError(f"{name} of stopper {self.name!r} must be {rule}, got {value}")
        return value

    def checked_grace(self, grace: float | None) -> Any:
        """The progress of the first comparison, None if it is not given."""
        known = grace is None or (grace > 0 and math.isfinite(grace))
        return self.checked("grace", grace, "above 0 and finite", known)

    def update_budget(self, spent: float, seconds_left: float) -> None:
        """Note how much of the budget is used; called before each decision."""
        self.spent = spent
        self.seconds_left = seconds_left

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed; called before any decision about it."""
        return

    @abstractmethod
    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Whether a trial goes on, stops or pauses after its newest report; not for trial 0.

        Args:
            trial: the running trial with all of its reports; trials: the sweep's, by number.
        """

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The paused trial that gets a free slot before a new one, and the reason; None for none.

        Args:
            last: whether no new trial will follow; None then ends the sweep if nothing runs.
        """
        return None

    def restrict(self, domain: Domain) -> None:
        """Propose only within the domain from now on."""
        return

    def propose(self, trials: Sequence[Trial]) -> Params | None:
        """The next new configuration if `guided`; None leaves it to the suggester."""
        return None
