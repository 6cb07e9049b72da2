"""Optuna's samplers as suggesters, and what suggesters of other libraries share.

The study is rebuilt from the history, it keeps no state.
"""

import contextlib
import logging
import math
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, Trial
from search_spaces import Choice, Float, Int, Parameter
from workers.protocol import Params, Value

from .base import Suggester
from .bayes.data import Array, loss_of
from .domain import repair

_MAX_VALUE = 1e100  # squares of larger ones overflow


class OptunaSuggester(Suggester):
    """A study with a fresh sampler for each suggestion; none proposes what was tried before.

    Spaces are defined by run: the sampler draws only active parameters, parents first. If a
    proposal breaks a constraint of the space or was tried before, the sampler is asked again, up to
    `max_asks` times; then the proposal is repaired. Failed trials have the worst loss seen, which
    works better than leaving them out. Pending trials are RUNNING.
    """

    package = "optuna"
    max_asks: ClassVar[int] = 16

    @cached_property
    def _distributions(self) -> dict[str, Any]:
        return {name: _distribution(p) for name, p in self.space.parameters.items()}

    @abstractmethod
    def _sampler(self, seed: int) -> Any:
        """A new sampler."""

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        import optuna

        found: list[Params] = []
        seen = self.trial_keys(history, pending)
        losses, violations, _ = observations(history, self.goals, self.constraints)
        with silenced("optuna", logging.ERROR):
            study = optuna.create_study(directions=["minimize"] * len(self.goals))
            rows = zip(history, losses.tolist(), violations.tolist(), strict=True)
            for trial, values, excess in rows:
                study.add_trial(self._frozen(trial.params, values, excess))
            for trial in pending:
                study.add_trial(self._frozen(trial.params))
            while len(found) < count:
                known = len(history) + len(pending) + len(found)
                seed = np.random.SeedSequence([self.seed, known]).generate_state(1)[0]
                params = self._ask(study, int(seed) % 2**31, seen)
                if params is None:
                    break
                found.append(params)
                seen.add(self.space.key(params))
                study.add_trial(self._frozen(params))
        return found

    def _frozen(
        self, params: Params, losses: Sequence[float] = (), excess: Sequence[float] = ()
    ) -> Any:
        from optuna.trial import TrialState, create_trial

        known = self.space.parameters
        options: dict[str, Any] = {
            "params": {name: _to_optuna(known[name], value) for name, value in params.items()},
            "distributions": {name: self._distributions[name] for name in params},
        }
        if not losses:
            return create_trial(state=TrialState.RUNNING, **options)
        if self.constraints:
            options["constraints"] = {str(i): value for i, value in enumerate(excess)}
        return create_trial(values=losses, **options)

    def _ask(self, study: Any, seed: int, seen: set[Hashable]) -> Params | None:
        """One proposal, legal and new; None if the space has no more."""
        from optuna.trial import TrialState

        study.sampler = self._sampler(seed)
        params: Params | None = None
        for _ in range(self.max_asks):
            trial = study.ask()
            params = self._define(trial)
            study.tell(trial, state=TrialState.FAIL)
            if self.space.satisfied(params) and self.space.key(params) not in seen:
                return params
        return repair(self.space, params, np.random.default_rng(seed), seen)

    def _define(self, trial: Any) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for name, parameter in self.space.parameters.items():
            if name in self.space.active(params):
                params[name] = _from_optuna(
                    parameter, trial._suggest(name, self._distributions[name])
                )
        return params


def _distribution(parameter: Parameter) -> Any:
    """A choice is given by its index: a number if it is ordered, else a category."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Choice):
        count = len(parameter.choices)
        return (
            IntDistribution(0, count - 1)
            if parameter.ordered
            else CategoricalDistribution(list(range(count)))
        )
    assert isinstance(parameter, Float | Int)
    kind = IntDistribution if isinstance(parameter, Int) else FloatDistribution
    return kind(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def _to_optuna(parameter: Parameter, value: Value) -> Any:
    return parameter.index(value) if isinstance(parameter, Choice) else value


def _from_optuna(parameter: Parameter, value: Any) -> Value:
    return (
        parameter.choices[int(value)] if isinstance(parameter, Choice) else parameter.nearest(value)  # type: ignore[attr-defined]
    )


def observations(
    trials: Sequence[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The trials for a suggester that knows only losses and constraint violations.

    Returns:
        losses: `n x g`, smaller is better, finite. A failed trial has the worst seen, or 0.
        violations: `n x c`, positive if a constraint is broken; 1 if the trial failed or the metric
            is unknown.
        failed: `n`, whether the trial ended without a usable result.
    """
    found = [[loss_of(trial, goal) for goal in goals] for trial in trials]
    losses = np.array(found).reshape(-1, len(goals)).clip(-_MAX_VALUE, _MAX_VALUE)
    failed = np.isnan(losses).any(1)
    losses[failed] = 0.0 if failed.all() else losses[~failed].max(0)
    excess = [
        [c.excess(trial.metrics.get(c.metric, math.nan)) for c in constraints] for trial in trials
    ]
    violations = np.array(excess).reshape(len(trials), len(constraints))
    violations = np.nan_to_num(violations, nan=1.0).clip(-_MAX_VALUE, _MAX_VALUE)
    violations[failed] = 1.0
    return losses, violations, failed


@contextlib.contextmanager
def silenced(logger: str, level: int) -> Iterator[None]:
    """Hide warnings, and the messages of a library's logger below a level."""
    library = logging.getLogger(logger)
    before = library.level
    library.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(before)
