"""The face of every suggester: one noun, one verb."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial
from search_spaces import Space
from workers.protocol import Params


class Suggester(ABC):
    """Proposes configurations from what is known.

    A suggester is a function of (space, goals, constraints, seed) and of the arguments of `suggest`: it may cache,
    but the same history, pending trials and seed give the same answer in any process. It is called from one thread
    at a time and never keeps or changes what it is given.

    Args:
        space: what may be tuned.
        goals: at least one; constraints: bounds on metrics.
        seed: of everything random.
    """

    name: ClassVar[str]

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
    ) -> None:
        self.space, self.goals, self.constraints, self.seed = (
            space,
            tuple(goals),
            tuple(constraints),
            seed,
        )

    @abstractmethod
    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """`count` configurations worth trying next, each legal in the space.

        Args:
            history: every finished, paused or interrupted trial, by number.
            pending: every waiting or running trial, by number, with what it has reported so far.
            count: how many are wanted, at least 1; fewer come back only where the space has no more.

        Returns:
            Configurations different from each other and from the pending ones.
        """

    def expected_gain(self, history: Sequence[Trial], params: Params) -> float | None:
        """The expected improvement of the goal by a trial, in the goal's unit, times the probability that it succeeds.

        Returns:
            None where the suggester cannot tell: it has no surrogate, too little is known, there are several goals.
        """
        return None
