"""Who takes part: our suggester, itself as a black box, the suggesters behind the same face, peers in processes."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suggesters.problems import Problem

from automl.core.trial import Trial
from automl.suggesters import SUGGESTERS
from automl.suggesters._optuna import OptunaSuggester
from automl.suggesters.base import Suggester
from benchmarks.peers.client import PEERS, PeerSuggester
from search_spaces import Space
from search_spaces.parameters import ALL

Params = dict[str, Any]


class TpeGroup(OptunaSuggester):
    """Optuna's TPE with `group=True`, its own answer to conditional spaces."""

    name = "tpe-group"

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, multivariate=True, group=True)


class TpePlain(OptunaSuggester):
    """Optuna's TPE as a user gets it: failed trials are FAIL, which teach it nothing."""

    name = "tpe-plain"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Any]:
        return super().suggest(
            [trial for trial in history if trial.failure is None], pending, count
        )

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed)


class BlackBox(Suggester):
    """A suggester that is not told what parameters affect, and sees nothing but goals and constraints."""

    name = "bayes-blackbox"

    def __init__(self, space: Space, goals: Any, constraints: Any = (), *, seed: int = 0) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        data = space.to_dict()
        for parameter in data["parameters"]:
            parameter["affects"] = sorted(ALL)
        plain = tuple(dataclasses.replace(goal, within=None) for goal in self.goals)
        self.inner = SUGGESTERS.get("bayes")(Space.from_dict(data), plain, constraints, seed=seed)
        self.kept = {goal.metric for goal in self.goals} | {
            constraint.metric for constraint in self.constraints
        }

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Any]:
        return self.inner.suggest([self._blind(trial) for trial in history], pending, count)

    def _blind(self, trial: Trial) -> Trial:
        metrics = {name: value for name, value in trial.metrics.items() if name in self.kept}
        return dataclasses.replace(trial, metrics=metrics, reports=(), peak_memory_bytes=None)


OWN = ("bayes", "bayes-blackbox")
VARIANTS: dict[str, type[Suggester]] = {c.name: c for c in (TpeGroup, TpePlain, BlackBox)}
ALL_NAMES = [*OWN, "tpe", "tpe-group", "tpe-plain", "optuna-gp", "ax", *PEERS, "sobol", "random"]


def make(name: str, problem: Problem, seed: int) -> Suggester:
    """A contestant for one run; a peer starts its process."""
    if name in PEERS:
        return PeerSuggester(name, problem.space, problem.goals, problem.constraints, seed=seed)
    kind: Callable[..., Suggester] = VARIANTS[name] if name in VARIANTS else SUGGESTERS.get(name)
    return kind(problem.space, problem.goals, problem.constraints, seed=seed)


@functools.cache
def fingerprint(name: str) -> str:
    """Of our suggester's code as this process loaded it, comments and docstrings left out; "" for a peer.

    Rows that were measured with another version are measured again.
    """
    if name not in OWN:
        return ""
    folder = Path(__file__).parents[2] / "automl" / "suggesters" / "bayes"
    code = "".join(_code(path) for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(code.encode()).hexdigest()[:10]


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                n
                for n in body
                if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
            ]  # type: ignore[attr-defined]
    return ast.dump(tree)
