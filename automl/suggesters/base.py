"""The interface of a suggester, and what else a user may say about a search."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from automl.core import Budget, Constraint, Goal, Trial
from search_spaces import Space
from workers.protocol import Params

from .domain import Domain, TrialKeys

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EarlierSweep:
    """What an earlier sweep, of the same or an overlapping space, teaches.

    Args:
        name: of that sweep.
        params: of its trials.
        losses: by metric, of each trial; smaller is better, NaN if the trial has no value.
    """

    name: str
    params: Sequence[Params]
    losses: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class SearchContext:
    """What a user adds to a search besides its goals and constraints.

    Args:
        domain: the space within the limits that hold now.
        prior: where good values probably are, by parameter, in the form that `UserPrior` reads.
        budget: of the sweep. If it limits time, a suggester may prefer cheap trials.
        earlier: sweeps to learn from. How much each tells about this one has to be learned.
    """

    domain: Domain
    prior: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    earlier: Sequence[EarlierSweep] = ()


@dataclass(frozen=True)
class Prospect:
    """What going on promises, with the noise of runs taken into account.

    Args:
        gain: how much worse the recommended configuration is than the best one, on average: what
            going on can gain. In the goal's unit.
        error: standard error of the recommendation's expected value, likewise.
        repeat: number of a trial, one of the five of which the model expects most, whose
            configuration should rather run again than a new one be tried; None if none should.
    """

    gain: float
    error: float
    repeat: int | None = None


class Suggester(ABC):
    """Proposes configurations, given the trials so far.

    A suggester is a function of its constructor's arguments and of the arguments of `suggest`. It
    may cache, but the same history, pending trials and seed give the same answer in any process.
    It is called from one thread at a time and never keeps or changes its arguments.

    Class attributes declare what a suggester can do. All are False by default:

    - `uses_context`: its constructor takes `context=SearchContext(...)`. It must propose within
      the domain, and it uses the prior and the budget. A stopper with a model of its own may choose
      new configurations too. Other suggesters get the narrowed space.
    - `predicts_gain`: `prospect` can return what going on promises.

    `package` is what must be installed, and the extra that brings it; "" if nothing.

    Args:
        space: what is tuned.
        goals: at least one.
        constraints: bounds on metrics.
        seed: of everything random.

    Attributes:
        trial_keys: identities of the configurations of trials, see `TrialKeys`.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    uses_context: ClassVar[bool] = False
    predicts_gain: ClassVar[bool] = False

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
    ) -> None:
        self.space = space
        self.goals = tuple(goals)
        self.constraints = tuple(constraints)
        self.seed = seed
        self.trial_keys = TrialKeys(space)

    @abstractmethod
    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """Propose `count` configurations to try next, each legal in the space.

        Args:
            history: every finished, paused or interrupted trial, by number.
            pending: every waiting or running trial, by number, with its reports so far.
            count: at least 1. Fewer come back only if nothing else is left to try; none ends the
                sweep.

        Returns:
            Configurations that differ from each other and from the pending ones.
        """

    def warm(self) -> None:
        """Import what only later suggestions need; called while trials run and nobody waits."""
        return

    def prospect(
        self, history: Sequence[Trial], pending: Sequence[Trial], params: Params | None
    ) -> Prospect | None:
        """What going on promises: a trial of `params`, or another run of a known configuration.

        Args:
            history, pending: as in `suggest`.
            params: a configuration that it has just proposed; None if no new one is left.

        Returns:
            None if the suggester cannot tell: it has no surrogate, there are too few trials, or
            there are several goals.
        """
        return None
