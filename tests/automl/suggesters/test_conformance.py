"""What every suggester must hold."""

from __future__ import annotations

import copy
import itertools
import math
import os
from typing import Any

import numpy as np
import pytest

from automl.core.goals import parse_constraints, parse_goals
from automl.core.trial import ReportLog, ReportPoint, Trial, TrialState
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from search_spaces import Choice, Float, Int, Space

MIXED = Space(
    Float("rate", 1e-5, 1.0, log=True),
    Float("share", 0.0, 1.0),
    Int("batch", 1, 512, log=True),
    Choice("kind", ["a", "b", "c"]),
    Choice("flag", [False, True]),
)
TREE = Space(
    Choice("optimizer", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
    Choice("nesterov", [False, True], when={"optimizer": "sgd"}),
    Float("beta", 0.8, 0.999, when={"optimizer": "adam"}),
    Int("depth", 1, 4),
    Choice("variant", ["x", "y"], when={"optimizer": "sgd", "nesterov": True}),
)
CONSTRAINED = Space(
    Int("batch", 1, 512, log=True),
    Choice("microbatches", [1, 2, 4, 8, 16], ordered=True),
    Int("data", 1, 16),
    Int("tensor", 1, 16),
    constraints=["batch >= 8 * microbatches", "data * tensor == 16"],
)
STEPS = Space(
    Float("model.rate", 0.0, 1.0, step=0.25),
    Float("fine", -1.0, 1.0, step=0.001),
    Int("model.width", 16, 96, step=16),
    Choice("loss.weight", [None, 0.5, 2.0]),
    Choice("widths", [(64,), (64, 32), None]),
    Float("model.dropout", 0.0, 0.5, step=0.1, when={"loss.weight": None}),
    constraints=["model.width >= 32 or model.rate < 0.6"],
)
SMALL = Space(Choice("a", [1, 2, 3]), Choice("b", ["x", "y"], when={"a": 2}))
SPACES = {"mixed": MIXED, "tree": TREE, "constrained": CONSTRAINED, "steps": STEPS}
IN_EVERY_RUN = ("test_legal_and_new", "test_mutates_nothing", "test_small_space_runs_out")
SLOW = {"ax", "optuna-gp"}  # seconds a suggestion: fewer calls, and not every test


@pytest.fixture(params=SUGGESTERS.names())
def name(request: pytest.FixtureRequest) -> str:
    rest = not request.node.name.startswith(IN_EVERY_RUN)
    if request.param in SLOW and rest and "AUTOML_TEST_ALL" not in os.environ:
        pytest.skip("takes minutes: make test-all")
    return str(request.param)


def make(name: str, space: Space, goals: Any = "minimize loss", **options: Any) -> Suggester:
    constraints = parse_constraints(options.pop("constraints", ()))
    return SUGGESTERS.get(name)(space, parse_goals(goals), constraints, **options)


def history(space: Space, count: int, fail_every: int = 0) -> list[Trial]:
    """Finished trials of a smooth loss; every so many of them failed."""
    trials = []
    for number, params in enumerate(space.sample(np.random.default_rng(0), count)):
        unit = np.nan_to_num(space.encode([params])[0], nan=0.5)
        if fail_every and number % fail_every == 0:
            trials.append(Trial(number, params, TrialState.FAILED, failure="out_of_memory"))
            continue
        loss = float(np.sum((unit - 0.3) ** 2))
        metrics = {"loss": loss, "size": float(np.sum(unit)), "seconds": 1.0}
        log = ReportLog((ReportPoint(1, {"loss": loss + 1}, 0.5), ReportPoint(2, metrics, 1.0)))
        trials.append(Trial(number, params, TrialState.COMPLETED, metrics, reports=log))
    return trials


def run(suggester: Suggester, space: Space, known: list[Trial], steps: int) -> list[Trial]:
    """Ask, check and tell so many times; the trials of the suggestions."""
    trials = list(known)
    for number in range(len(known), len(known) + steps):
        for params in suggester.suggest(trials, []):
            space.accept(params)
            loss = {"loss": float(number)}
            trials.append(Trial(number, params, TrialState.COMPLETED, loss))
    return trials[len(known) :]


@pytest.mark.parametrize("kind", list(SPACES))
def test_legal_and_new(name: str, kind: str) -> None:
    if name in SLOW and kind in ("mixed", "tree"):
        pytest.skip("a slow suggester is tried on fewer spaces")
    space, known = SPACES[kind], history(SPACES[kind], 12)
    found = run(make(name, space), space, known, 1 if name in SLOW else 12)
    tried = [space.key(trial.params) for trial in found]
    assert len({*tried}) == len(tried) == (1 if name in SLOW else 12)


@pytest.mark.parametrize("kind", list(SPACES))
def test_seed_and_history_decide_and_earlier_questions_do_not(name: str, kind: str) -> None:
    known = history(SPACES[kind], 14, fail_every=5)
    past, pending = known[:12], [Trial(t.number, t.params, TrialState.RUNNING) for t in known[12:]]
    first, used = (make(name, SPACES[kind], seed=3) for _ in range(2))
    used.suggest(past[:11], [])
    assert used.suggest(past, pending, 3) == first.suggest(past, pending, 3)


def test_differs_from_pending_and_itself(name: str) -> None:
    space = Space(Choice("a", list(range(6))), Choice("b", ["x", "y"]))
    known = list({space.key(t.params): t for t in history(space, 11)}.values())
    pending = [Trial(50, {"a": 3, "b": "x"}, TrialState.RUNNING)]
    keys = {space.key(params) for params in make(name, space).suggest(known, pending, 2)}
    assert len(keys - {space.key(t.params) for t in pending}) == 2


@pytest.mark.parametrize("size", [4, 1])
def test_small_space_runs_out(name: str, size: int) -> None:
    space = SMALL if size == 4 else Space(Choice("only", ["this"]))
    found = run(make(name, space), space, [], size)
    assert len({space.key(trial.params) for trial in found}) == size
    assert size == 1 or make(name, space).suggest(found, []) == []


def test_mutates_nothing(name: str) -> None:
    known = history(TREE, 12, fail_every=4)
    pending = [Trial(12, known[0].params, TrialState.RUNNING)]
    before = copy.deepcopy((known, pending, TREE.to_dict()))
    state = repr(np.random.get_state())
    make(name, TREE).suggest(known, pending)
    assert (known, pending, TREE.to_dict()) == before
    assert repr(np.random.get_state()) == state


def valued(values: list[float]) -> list[Trial]:
    """Trials that have these values of the loss, again and again."""
    losses = itertools.cycle(values)
    return [
        Trial(t.number, t.params, TrialState.COMPLETED, {"loss": next(losses)})
        for t in history(MIXED, 12)
    ]


def without_the_goal(fail_every: int, state: TrialState) -> list[Trial]:
    """Some trials that failed, and some that have another metric."""
    other = [Trial(20 + t.number, t.params, state, {"other": 1.0}) for t in history(TREE, 3)]
    return [*history(TREE, 12, fail_every), *other]


TWO_GOALS = {"goals": ["minimize loss", "maximize size"], "constraints": ["size <= 3"], "seed": 1}
HARD: dict[str, tuple[Space, list[Trial], dict[str, Any]]] = {
    "nothing": (MIXED, [], {}),
    "not finite": (MIXED, valued([math.nan, math.inf, -math.inf, 1.0]), {}),
    "constant": (MIXED, valued([1.0]), {}),
    "huge": (MIXED, valued([1e300, -1e300, 1.0]), {}),
    "tiny": (MIXED, valued([1e-300, 2e-300, 0.0]), {}),
    **{
        f"{state} and a failure of {every}": (TREE, without_the_goal(every, state), {})
        for state in (TrialState.COMPLETED, TrialState.STOPPED)
        for every in (1, 2)
    },
    "goals and constraints": (MIXED, history(MIXED, 12, fail_every=6), TWO_GOALS),
}


@pytest.mark.parametrize("hard", HARD)
def test_survives_hard_histories(name: str, hard: str) -> None:
    space, known, options = HARD[hard]
    space.accept(make(name, space, **options).suggest(known, [])[0], whole=True)
