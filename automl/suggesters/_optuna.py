"""Optuna's samplers as suggesters. The study is rebuilt from the history, it keeps no state."""

import logging
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from automl.core import Trial
from search_spaces import Choice, Float, Int, Parameter
from workers.protocol import Params, Value

from ._new_points import repair
from ._peers import observations, silenced
from .base import Suggester


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
