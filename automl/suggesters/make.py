"""The suggester of a sweep, within the limits that hold now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from automl.core.budget import Budget
from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial
from automl.errors import UsageError
from search_spaces import Space
from workers.protocol import Params

from . import SUGGESTERS
from .base import Suggester
from .bayes.acquisition.user_prior import Beliefs
from .domain import Limits, narrowed

BELIEVER = "bayes"  # the only suggester that takes beliefs


def make(
    name: str,
    space: Space,
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
    *,
    seed: int = 0,
    limits: Limits | None = None,
    beliefs: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
) -> Suggester:
    """The suggester of that name, which proposes within the limits, and where it can after the beliefs and by seconds.

    Args:
        budget: of the sweep; what it says of time makes `bayes` weigh what trials cost.
    """
    narrow = narrowed(space, limits) if limits else space
    timed = budget if budget is not None and (budget.time or budget.worker_time) else None
    if name == BELIEVER and (limits or beliefs or timed):
        from .bayes.steered import SteeredBayes

        steered: dict[str, Any] = {
            "narrow": narrow,
            "beliefs": Beliefs(space, beliefs or {}),
            "budget": timed,
        }
        return SteeredBayes(space, goals, constraints, seed=seed, **steered)
    inner = SUGGESTERS.get(name)(narrow, goals, constraints, seed=seed)
    return inner if narrow is space else Within(space, inner)


def check_beliefs(beliefs: Mapping[str, Any], space: Space, suggester: str) -> dict[str, Any]:
    """The beliefs as the ledger keeps them; raises UsageError where they fit neither space nor suggester."""
    if beliefs and suggester != BELIEVER:
        raise UsageError(
            f"beliefs are for the suggester {BELIEVER!r}, got {suggester!r}: it would not hear them"
        )
    return Beliefs(space, beliefs).to_dict()


class Within(Suggester):
    """Another suggester in a narrower space: it is told of the trials that lie within."""

    name: ClassVar[str] = "within"

    def __init__(self, space: Space, inner: Suggester) -> None:
        super().__init__(space, inner.goals, inner.constraints, seed=inner.seed)
        self._inner = inner

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`."""
        narrow = self._inner.space
        told = [trial for trial in history if narrow.legal(trial.params)]
        waiting = [trial for trial in pending if narrow.legal(trial.params)]
        return self._inner.suggest(told, waiting, count)
