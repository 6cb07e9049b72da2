"""The `bayes` suggester as an Optuna sampler: `create_study(sampler=automl.BayesSampler())`."""

import warnings
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
from automl.suggesters.domain import Domain, Limit
from automl.suggesters.proposer import make_suggester
from search_spaces import Choice, Float, Int, Parameter, Space
from workers.protocol import Value

MAX_PARENT_VALUES = 32
ROUNDING = 1e-8  # of a step
_FINISHED = (OptunaState.COMPLETE, OptunaState.PRUNED)


class BayesSampler(BaseSampler):  # type: ignore[misc]
    """The `bayes` suggester as an Optuna sampler.

    An Optuna objective defines its space while it runs. From the finished trials, this sampler
    learns the parameters, and which value of which other parameter makes each of them active. It
    models all of them together. If a range has changed, it proposes within the newest one, and
    trials outside of it still teach. A parameter of which a float decides is drawn at random, as is
    one whose kind or scale has changed (with a warning). Failed trials teach the failure model,
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
        context = SearchContext(learned.domain)
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


def _draw_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


@dataclass(frozen=True)
class LearnedSpace:
    """A space that finished trials reveal, as ours and as Optuna's.

    Args:
        domain: its space has every value of the trials; the newest ranges are its limits.
        distributions: the newest of each parameter of Optuna.
        names: our name of each parameter of Optuna.
    """

    domain: Domain
    distributions: dict[str, BaseDistribution]
    names: dict[str, str]

    @property
    def space(self) -> Space:
        """Every value of the trials."""
        return self.domain.space

    def inward(self, params: dict[str, Any]) -> dict[str, Value]:
        """Converts Optuna's values to ours; leaves out unknown ones."""
        found = {n: _inward(d, params[n]) for n, d in self.distributions.items() if n in params}
        parameters = self.space.parameters
        return {
            self.names[n]: parameters[self.names[n]].accept(value)
            for n, value in found.items()
            if parameters[self.names[n]].legal(value)
        }

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
        if not curve:  # pruned before it has reported: there is no value to learn from
            return Trial(trial.number, params, TrialState.FAILED, metrics, failure="crashed")
        reports = ReportLog(
            ReportPoint(step, {goals[0].metric: value}, 0.0) for step, value in curve
        )
        metrics |= reports[-1].metrics if reports else {}
        return Trial(trial.number, params, TrialState.STOPPED, metrics, reports=reports)


def learn_space(trials: Sequence[FrozenTrial]) -> LearnedSpace | None:
    """The space that finished trials reveal; None if there is nothing to model yet."""
    seen: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            known = seen.setdefault(name, [])
            if distribution in known:  # equal; a category that is a list has no hash
                known.remove(distribution)
            known.append(distribution)  # the newest comes last
    newest = {name: known[-1] for name, known in sorted(seen.items())}
    kept = {n: d for n, d in newest.items() if not d.single() and _alike(n, seen[n])}
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
        parameters.append(_parameter(names[name], seen[name], when))
    limits = {
        names[n]: Limit(low=kept[n].low, high=kept[n].high) for n in parents if len(seen[n]) > 1
    }
    distributions = {name: kept[name] for name in parents}
    return LearnedSpace(Domain(Space(*parameters), limits), distributions, names)


def _alike(name: str, known: Sequence[BaseDistribution]) -> bool:
    """Whether one parameter can have all of these ranges; warned of if not."""
    if len(known) == 1:
        return True
    numbers = [d for d in known if isinstance(d, FloatDistribution | IntDistribution)]
    if len(numbers) == len(known) and len({(type(d), d.log) for d in numbers}) == 1:
        return True
    warnings.warn(
        f"{name!r} is drawn at random: its kind or its scale has changed within the study, "
        f"from {known[-2]} to {known[-1]}; give it another name",
        stacklevel=2,
    )
    return False


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
        if (
            parent == name
            or not _discrete(distribution)
            or any(parent not in params for params in present)
        ):
            continue
        under = dict.fromkeys(_inward(distribution, params[parent]) for params in present)
        without = {_inward(distribution, p[parent]) for p in absent if parent in p}
        if without and not without & under.keys():
            return parent, list(under)
    return None


def _discrete(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, CategoricalDistribution) or (
        isinstance(distribution, IntDistribution)
        and (distribution.high - distribution.low) // distribution.step < MAX_PARENT_VALUES
    )


def _parameter(name: str, known: Sequence[BaseDistribution], when: Any) -> Parameter:
    """Our parameter with every value of some distributions. Categories become their index."""
    first = known[0]
    if isinstance(first, CategoricalDistribution):
        return Choice(name, list(range(len(first.choices))), when=when)
    low, high = min(d.low for d in known), max(d.high for d in known)
    steps = {d.step for d in known}
    step = first.step if len(steps) == 1 else None
    if step is not None and any(
        abs((d.low - low) / step % 1.0 - 0.5) < 0.5 - ROUNDING for d in known
    ):
        step = None  # their grids differ
    if isinstance(first, IntDistribution):
        return Int(name, low, high, log=first.log, step=step or 1, when=when)
    return Float(name, low, high, log=first.log, step=step, when=when)


def _inward(distribution: BaseDistribution, value: Any) -> Value:
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


def _outward(distribution: BaseDistribution, value: Any) -> Any:
    """The value as Optuna has it, on the grid of a distribution with a step."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    low, step = distribution.low, distribution.step
    if isinstance(distribution, IntDistribution):
        return low + round((value - low) / step) * step
    if step is None:
        return value
    return min(float(low + round((value - low) / step) * step), distribution.high)
