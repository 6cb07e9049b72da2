"""The contestants: our suggester, the same as a black box, other suggesters, and peers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from automl.core.trial import Trial
from automl.suggesters import SUGGESTERS
from automl.suggesters._optuna import OptunaSuggester
from automl.suggesters.base import Suggester
from automl.suggesters.bayes.suggester import ALL_RULES, Policy
from benchmarks.suggesters.fingerprint import OWN
from benchmarks.suggesters.problems import Problem
from search_spaces import Space
from search_spaces.parameters import ALL

Params = dict[str, Any]


class TpeGroup(OptunaSuggester):
    """Optuna's TPE with `group=True`, its option for conditional spaces."""

    name = "tpe-group"

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, multivariate=True, group=True)


class TpePlain(OptunaSuggester):
    """Optuna's TPE with its defaults: failed trials are FAIL, from which it learns nothing."""

    name = "tpe-plain"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Any]:
        return super().suggest([t for t in history if t.failure is None], pending, count)

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed)


class BlackBox(Suggester):
    """`bayes` that sees goals and constraints only, and knows of no parameter what it affects."""

    name = "bayes-blackbox"

    def __init__(self, space: Space, goals: Any, constraints: Any = (), *, seed: int = 0) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        data = space.to_dict()
        for parameter in data["parameters"]:
            parameter["affects"] = sorted(ALL)
        plain = tuple(dataclasses.replace(goal, within=None) for goal in self.goals)
        self.suggester = SUGGESTERS.get("bayes")(
            Space.from_dict(data), plain, constraints, seed=seed
        )
        self.metrics = {goal.metric for goal in self.goals} | {
            constraint.metric for constraint in self.constraints
        }

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Any]:
        return self.suggester.suggest([self._blind(trial) for trial in history], pending, count)

    def _blind(self, trial: Trial) -> Trial:
        metrics = {name: value for name, value in trial.metrics.items() if name in self.metrics}
        return dataclasses.replace(trial, metrics=metrics, reports=(), peak_memory_bytes=None)


RULES = tuple(field.name for field in dataclasses.fields(Policy))


def flipped(rules: str) -> str:
    """The contestant `bayes` with these rules flipped, joined by `+`; "" flips none."""
    return f"bayes~{rules}" if rules else "bayes"


def policy_of(name: str) -> Policy:
    """The policy of `bayes` or `bayes~RULE+RULE`: each of these rules is flipped."""
    rules = filter(None, name.partition("~")[2].split("+"))
    return dataclasses.replace(ALL_RULES, **{rule: not getattr(ALL_RULES, rule) for rule in rules})


VARIANTS: dict[str, type[Suggester]] = {c.name: c for c in (TpeGroup, TpePlain, BlackBox)}
PEERS = ("smac", "hebo")  # stored rows only
ALL_NAMES = [*OWN, "tpe", "tpe-group", "tpe-plain", "optuna-gp", "ax", *PEERS, "sobol", "random"]


def make(name: str, problem: Problem, seed: int) -> Suggester:
    """The contestant of one run."""
    kind: Callable[..., Suggester]
    if "~" in name:
        kind = functools.partial(SUGGESTERS.get("bayes"), policy=policy_of(name))
    else:
        kind = VARIANTS[name] if name in VARIANTS else SUGGESTERS.get(name)
    return kind(problem.space, problem.goals, problem.constraints, seed=seed)
