"""The `bayes` suggester as an Optuna sampler: `create_study(sampler=automl.BayesSampler())`."""

import math
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
from search_spaces import Choice, Float, Int, Parameter, Space
from workers.protocol import Value

MAX_PARENT_VALUES = 32
_FINISHED = (OptunaState.COMPLETE, OptunaState.PRUNED)


class BayesSampler(BaseSampler):  # type: ignore[misc]
    """The `bayes` suggester as an Optuna sampler.

    An Optuna objective defines its space while it runs. From the finished trials, this sampler
    learns the parameters, and which value of which other parameter makes each of them active. It
    models all of them together. A parameter that does not fit (its range changes, or a float
    decides about it) is drawn at random. Failed trials teach the failure model, pruned trials count
    with their best intermediate value, running trials are pending, and constraints are respected.

    Args:
        seed: of everything random; None draws one.
        suggester: name of another suggester to use.

    Example:
        >>> import optuna
        >>> study = optuna.create_study(sampler=BayesSampler(seed=0))
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=3)
    """

    def __init__(self, seed: int | None = None, *, suggester: str = "bayes") -> None:
        self._suggester = SUGGESTERS.get(suggester)
        self._seed = _draw_seed() if seed is None else seed

    def reseed_rng(self) -> None:
        """Draw a new seed. Optuna calls this if several processes share a sampler."""
        self._seed = _draw_seed()

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
        history: list[Trial] = []
        pending: list[Trial] = []
        for other in others:
            converted = learned.trial(other, keys, goals)
            if converted is not None:
                (pending if other.state == OptunaState.RUNNING else history).append(converted)
        found = self._suggester(learned.space, goals, constraints, seed=self._seed).suggest(
            history, pending
        )
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


def _draw_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


@dataclass(frozen=True)
class LearnedSpace:
    """A space that finished trials reveal, as ours and as Optuna's.

    Args:
        names: our name of each parameter of Optuna.
    """

    space: Space
    distributions: dict[str, BaseDistribution]
    names: dict[str, str]

    def inward(self, params: dict[str, Any]) -> dict[str, Value]:
        """Converts Optuna's values to ours; leaves out unknown ones."""
        known = {n: d for n, d in self.distributions.items() if n in params and _same(d, params[n])}
        return {self.names[n]: _inward(d, params[n]) for n, d in known.items()}

    def outward(self, params: Any) -> dict[str, Any]:
        """The inverse of `inward`."""
        return {
            n: _outward(d, params[self.names[n]])
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
        reports = ReportLog(
            ReportPoint(step, {goals[0].metric: value}, 0.0) for step, value in curve
        )
        metrics |= reports[-1].metrics if reports else {}
        return Trial(trial.number, params, TrialState.STOPPED, metrics, reports=reports)


def learn_space(trials: Sequence[FrozenTrial]) -> LearnedSpace | None:
    """The space that finished trials reveal; None if there is nothing to model yet."""
    distributions: dict[str, BaseDistribution] = {}
    moved: set[str] = set()
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if distributions.setdefault(name, distribution) != distribution:
                moved.add(name)
    kept = {n: d for n, d in sorted(distributions.items()) if n not in moved and not d.single()}
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
        when = (
            {names[found[0]]: [_inward(kept[found[0]], value) for value in found[1]]}
            if found
            else None
        )
        parameters.append(_parameter(names[name], kept[name], when))
    return LearnedSpace(Space(*parameters), {name: kept[name] for name in parents}, names)


def _parent(
    name: str, distributions: dict[str, BaseDistribution], trials: Sequence[FrozenTrial]
) -> tuple[str, list[Any]] | tuple[()] | None:
    """The discrete parameter that decides if `name` is active, and the values that activate it.

    Empty if `name` is always active, None if no single parameter explains it.
    """
    present = [trial.params for trial in trials if name in trial.params]
    absent = [trial.params for trial in trials if name not in trial.params]
    if not absent:
        return ()
    for parent, distribution in distributions.items():
        if (
            parent == name
            or not _discrete(distribution)
            or any(parent not in params for params in present)
        ):
            continue
        under = list(dict.fromkeys(params[parent] for params in present))
        without = [params[parent] for params in absent if parent in params]
        if without and not any(value in without for value in under):
            return parent, under
    return None


def _discrete(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, CategoricalDistribution) or (
        isinstance(distribution, IntDistribution)
        and (distribution.high - distribution.low) // distribution.step < MAX_PARENT_VALUES
    )


def _parameter(name: str, distribution: BaseDistribution, when: Any) -> Parameter:
    """Our parameter for a distribution. Numbers with a step and categories become their index."""
    if isinstance(distribution, CategoricalDistribution):
        return Choice(name, list(range(len(distribution.choices))), when=when)
    low, high, step = distribution.low, distribution.high, distribution.step
    if _stepped(distribution):
        return Int(name, 0, math.floor((high - low) / step + 1e-9), when=when)
    kind = Int if isinstance(distribution, IntDistribution) else Float
    return kind(name, low, high, log=distribution.log, when=when)


def _stepped(distribution: BaseDistribution) -> bool:
    if isinstance(distribution, FloatDistribution):
        return distribution.step is not None
    return bool(distribution.step != 1)


def _same(distribution: BaseDistribution, value: Any) -> bool:
    """Whether the distribution contains the value."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


def _inward(distribution: BaseDistribution, value: Any) -> Value:
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    if _stepped(distribution):
        return int(round((value - distribution.low) / distribution.step))  # noqa: RUF046
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


def _outward(distribution: BaseDistribution, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    if not _stepped(distribution):
        return value
    stepped = distribution.low + value * distribution.step
    return (
        stepped
        if isinstance(distribution, IntDistribution)
        else min(float(stepped), distribution.high)
    )
