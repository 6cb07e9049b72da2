"""The `bayes` suggester as an Optuna sampler: `create_study(sampler=automl.BayesSampler())`."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.core import Constraint, Goal, ReportLog, ReportPoint, Trial, TrialState
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import make_suggester
from search_spaces import Choice, Float, Int, Parameter, Space
from workers.protocol import Value

MAX_PARENT_VALUES = 32
_FINISHED = (OptunaState.COMPLETE, OptunaState.PRUNED)


class BayesSampler(BaseSampler):  # type: ignore[misc]
    """The `bayes` suggester as an Optuna sampler.

    An Optuna objective defines its space while it runs. From the finished trials, this sampler
    learns the parameters, and which value of which other parameter makes each of them active. It
    models all of them together, each within its newest range; trials outside of it teach nothing.
    A parameter of which a float decides is drawn at random. Failed trials teach the failure model,
    pruned trials count with their best intermediate value, running trials are pending, and
    constraints are respected.

    Args:
        seed: of everything random; None draws one.
        suggester: name of another suggester to use.

    Example:
        >>> import optuna
        >>> study = optuna.create_study(sampler=BayesSampler(seed=0))
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=3)
    """

    def __init__(self, seed: int | None = None, *, suggester: str = "bayes") -> None:
        self._suggester = SUGGESTERS.require(suggester)
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed

    def reseed_rng(self) -> None:
        """Draw a new seed. Optuna calls this if several processes share a sampler."""
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter that fits into the learned space."""
        learned = learn_space(study.get_trials(deepcopy=False, states=_FINISHED))
        return {} if learned is None else dict(learned.distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """One suggestion from the history of the study."""
        learned = learn_space(study.get_trials(deepcopy=False, states=_FINISHED))
        if learned is None or not search_space:
            return {}
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        keys = sorted({key for t in others for key in t.constraints})
        goals = [
            Goal(f"value_{i}", d == StudyDirection.MAXIMIZE) for i, d in enumerate(study.directions)
        ]
        constraints = [Constraint(f"constraint_{i}", 0.0) for i in range(len(keys))]
        read = [learned.trial(other, keys, goals) for other in others]
        known = [one for one in read if one is not None]
        pending = [one for one in known if one.state is TrialState.RUNNING]
        history = [one for one in known if one.state is not TrialState.RUNNING]
        context = SearchContext(Domain(learned.space, {}))
        suggester = make_suggester(self._suggester, goals, constraints, context, seed=self._seed)
        found = suggester.suggest(history, pending)
        return (
            {n: v for n, v in learned.outward(found[0]).items() if n in search_space}
            if found
            else {}
        )

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value that depends on seed, trial and name only."""
        entropy = [self._seed, trial.number, zlib.crc32(param_name.encode())]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return RandomSampler(seed=seed).sample_independent(
            study, trial, param_name, param_distribution
        )


@dataclass(frozen=True)
class LearnedSpace:
    """A space that finished trials reveal, as ours and as Optuna's.

    Args:
        space: of the newest ranges; trials outside of them teach nothing.
        distributions: the newest of each parameter of Optuna.
        names: our name of each parameter of Optuna.
    """

    space: Space
    distributions: dict[str, BaseDistribution]
    names: dict[str, str]

    def inward(self, params: dict[str, Any]) -> dict[str, Value]:
        """Converts Optuna's values to ours; leaves out unknown ones."""
        found = {n: _inward(d, params[n]) for n, d in self.distributions.items() if n in params}
        parameters = self.space.parameters
        known = {self.names[n]: value for n, value in found.items() if value is not None}
        return {name: parameters[name].accept(value) for name, value in known.items()}

    def outward(self, params: Any) -> dict[str, Any]:
        """The inverse of `inward`."""
        return {
            n: d.to_external_repr(params[self.names[n]])
            for n, d in self.distributions.items()
            if self.names[n] in params
        }

    def trial(self, trial: FrozenTrial, keys: Sequence[str], goals: Sequence[Goal]) -> Trial | None:
        """Converts an Optuna trial to ours; None if it does not fit the space."""
        params = self.inward(trial.params)
        if trial.state in (OptunaState.RUNNING, OptunaState.WAITING):
            running = self.space.complete(params) if params else {}
            return Trial(trial.number, running, TrialState.RUNNING) if running else None
        if not self.space.legal(params):
            return None
        metrics = {
            f"constraint_{i}": trial.constraints[k]
            for i, k in enumerate(keys)
            if k in trial.constraints
        }
        if trial.state == OptunaState.FAIL:
            return Trial(trial.number, params, TrialState.FAILED, metrics, failure="crashed")
        if trial.state == OptunaState.COMPLETE:
            metrics |= {goal.metric: value for goal, value in zip(goals, trial.values, strict=True)}
            return Trial(trial.number, params, TrialState.COMPLETED, metrics)
        curve = sorted(trial.intermediate_values.items())
        if not curve:  # pruned before it has reported: there is no value to learn from
            return Trial(trial.number, params, TrialState.FAILED, metrics, failure="crashed")
        reports = ReportLog(
            ReportPoint(step, {goals[0].metric: value}, 0.0) for step, value in curve
        )
        metrics |= reports[-1].metrics if reports else {}
        return Trial(trial.number, params, TrialState.STOPPED, metrics, reports=reports)


def learn_space(trials: Sequence[FrozenTrial]) -> LearnedSpace | None:
    """The space that finished trials reveal; None if there is nothing to model yet."""
    newest: dict[str, BaseDistribution] = {}
    for trial in trials:
        newest |= trial.distributions
    kept = {name: one for name, one in sorted(newest.items()) if not one.single()}
    parents = {name: _parent(name, kept, trials) for name in kept}
    while dropped := [
        n for n, found in parents.items() if found is None or (found and found[0] not in parents)
    ]:
        parents = {n: found for n, found in parents.items() if n not in dropped}
    if not parents:
        return None
    names = {name: f"p{i}" for i, name in enumerate(parents)}
    parameters = []
    for name, found in parents.items():
        when = {names[found[0]]: found[1]} if found else None
        parameters.append(_parameter(names[name], kept[name], when))
    return LearnedSpace(Space(*parameters), {name: kept[name] for name in parents}, names)


def _parent(
    name: str, distributions: dict[str, BaseDistribution], trials: Sequence[FrozenTrial]
) -> tuple[str, list[Value]] | tuple[()] | None:
    """The discrete parameter that decides if `name` is active, and its values of ours that do so.

    Empty if `name` is always active, None if no single parameter explains it.
    """
    present = [trial.params for trial in trials if name in trial.params]
    absent = [trial.params for trial in trials if name not in trial.params]
    if not absent:
        return ()
    for parent, distribution in distributions.items():
        fits = parent != name and _discrete(distribution)
        if not fits or any(parent not in params for params in present):
            continue
        under = dict.fromkeys(_inward(distribution, params[parent]) for params in present)
        without = {_inward(distribution, p[parent]) for p in absent if parent in p}
        if without and not without & under.keys():
            return parent, [value for value in under if value is not None]
    return None


def _discrete(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, CategoricalDistribution) or (
        isinstance(distribution, IntDistribution)
        and (distribution.high - distribution.low) // distribution.step < MAX_PARENT_VALUES
    )


def _parameter(name: str, one: BaseDistribution, when: Any) -> Parameter:
    """Our parameter for a distribution. Categories become their index."""
    if isinstance(one, CategoricalDistribution):
        return Choice(name, list(range(len(one.choices))), when=when)
    kind: Any = Int if isinstance(one, IntDistribution) else Float
    made: Parameter = kind(name, one.low, one.high, log=one.log, step=one.step, when=when)
    return made


def _inward(distribution: BaseDistribution, value: Any) -> Value | None:
    """A value as ours; None if it is none of the distribution, which has changed meanwhile."""
    try:
        found = distribution.to_internal_repr(value)
    except ValueError:
        return None
    if not distribution._contains(found):
        return None
    return found if isinstance(distribution, FloatDistribution) else int(found)
