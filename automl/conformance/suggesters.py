"""The promises of every suggester.

A plugin runs them with `pytest --automl-conformance`: each suggester of an entry point is tested.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from automl.core.goals import parse_constraints, parse_goals
from automl.core.reports import ReportLog, ReportPoint
from automl.core.trial import Trial, TrialState
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from search_spaces import Choice, Float, Int, Space
from workers.protocol import Params

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


@pytest.fixture(params=SUGGESTERS.installed())
def name(request: pytest.FixtureRequest) -> str:
    """The name of the suggester that is tested."""
    return str(request.param)


@pytest.fixture
def is_slow() -> bool:
    """Whether a suggestion takes seconds, so that fewer are asked for."""
    return False


def make(
    name: str, space: Space, goals: str | list[str] = "minimize loss", **options: Any
) -> Suggester:
    """The suggester of that name."""
    constraints = parse_constraints(options.pop("constraints", ()))
    return SUGGESTERS.get(name)(space, parse_goals(goals), constraints, **options)


def history(space: Space, count: int, *, seed: int = 0, fail_every: int = 0) -> list[Trial]:
    """Finished trials of a smooth loss; every so many of them failed."""
    rng = np.random.default_rng(seed)
    trials = []
    for number, params in enumerate(space.sample(rng, count)):
        unit = np.nan_to_num(space.encode([params])[0], nan=0.5)
        loss, size = float(np.sum((unit - 0.3) ** 2)), float(np.sum(unit))
        if fail_every and number % fail_every == 0:
            trials.append(Trial(number, params, TrialState.FAILED, failure="out_of_memory"))
        else:
            metrics = {"loss": loss, "size": size, "seconds": 1.0}
            points = (ReportPoint(1, {"loss": loss + 1}, 0.5), ReportPoint(2, {"loss": loss}, 1.0))
            log = ReportLog(points)
            trials.append(Trial(number, params, TrialState.COMPLETED, metrics, reports=log))
    return trials


def run(suggester: Suggester, space: Space, known: list[Trial], steps: int) -> list[Params]:
    """Ask, check and tell so many times."""
    found: list[Params] = []
    trials = list(known)
    for _ in range(steps):
        (params,) = suggester.suggest(trials, [])
        space.check(params)
        found.append(dict(params))
        trials.append(Trial(len(trials), params, TrialState.COMPLETED, {"loss": float(len(found))}))
    return found


def only_if_cheap(is_slow: bool, case: str, kept: set[str]) -> None:
    """Skip most cases of a slow suggester."""
    if is_slow and case not in kept:
        pytest.skip("the slow suggesters are tried on fewer cases")


@pytest.mark.parametrize("kind", list(SPACES))
def test_legal_and_new(name: str, is_slow: bool, kind: str) -> None:
    """Suggestions are legal, and none comes twice."""
    only_if_cheap(is_slow, kind, {"constrained", "steps"})
    space = SPACES[kind]
    known = history(space, 12)
    found = run(make(name, space), space, known, 1 if is_slow else 12)
    keys = [space.key(p) for p in [*(t.params for t in known), *found]]
    assert len(set(keys[12:])) == len(found), "a suggestion came twice"


def test_starts_from_nothing(name: str, is_slow: bool) -> None:
    """It proposes before any trial has ended."""
    space = TREE
    found = run(make(name, space), space, [], 3 if is_slow else 8)
    assert len({space.key(p) for p in found}) == len(found)


@pytest.mark.parametrize("kind", list(SPACES))
def test_same_seed_and_history_same_answer(name: str, is_slow: bool, kind: str) -> None:
    """Seed and history decide; earlier questions do not."""
    only_if_cheap(is_slow, kind, {"tree"})
    space = SPACES[kind]
    known = history(space, 14, fail_every=5)
    past, pending = known[:12], [Trial(t.number, t.params, TrialState.RUNNING) for t in known[12:]]
    first = make(name, space, seed=3).suggest(past, pending, 1 if is_slow else 3)
    used = make(name, space, seed=3)
    used.suggest(past[:11], [])
    assert used.suggest(past, pending, 1 if is_slow else 3) == first, (
        "an earlier question changed the answer"
    )


def test_seeds_differ(name: str) -> None:
    """Another seed may lead elsewhere."""
    answers = {MIXED.key(make(name, MIXED, seed=seed).suggest([], [])[0]) for seed in range(4)}
    assert len(answers) > 1 or make(name, MIXED).suggest(history(MIXED, 3), [])[0]


def test_differs_from_pending_and_itself(name: str) -> None:
    """Two suggestions differ from each other and from what runs."""
    space = Space(Choice("a", list(range(6))), Choice("b", ["x", "y"]))
    known = history(space, 40)[:11]
    known = list({space.key(t.params): t for t in known}.values())
    pending = [
        Trial(50, {"a": 3, "b": "x"}, TrialState.RUNNING),
        Trial(51, {"a": 2, "b": "y"}, TrialState.WAITING),
    ]
    found = make(name, space).suggest(known, pending, 2)
    keys = {space.key(params) for params in found}
    assert len(found) == 2
    assert len(keys) == 2
    assert not keys & {space.key(t.params) for t in pending}


def test_small_space_runs_out(name: str) -> None:
    """A small space is tried as a whole, and then no suggestion comes."""
    suggester = make(name, SMALL)
    trials: list[Trial] = []
    for number in range(6):
        for params in suggester.suggest(trials, [], 1):
            SMALL.check(params)
            trials.append(Trial(number, params, TrialState.COMPLETED, {"loss": 1.0}))
    assert len({SMALL.key(t.params) for t in trials}) == 4


def test_mutates_nothing(name: str) -> None:
    """Arguments and numpy's global generator stay as they are."""
    known = history(TREE, 12, fail_every=4)
    pending = [Trial(12, known[0].params, TrialState.RUNNING)]
    before = copy.deepcopy((known, pending, TREE.to_dict()))
    state = repr(np.random.get_state())
    make(name, TREE).suggest(known, pending)
    assert (known, pending, TREE.to_dict()) == before
    assert repr(np.random.get_state()) == state


ODD = {
    "nan": [math.nan, 1.0, 2.0],
    "inf": [math.inf, -math.inf, 1.0],
    "constant": [1.0, 1.0, 1.0],
    "huge": [1e300, -1e300, 1.0],
    "tiny": [1e-300, 2e-300, 0.0],
}


@pytest.mark.parametrize("odd", list(ODD))
def test_survives_odd_metrics(name: str, is_slow: bool, odd: str) -> None:
    """Values that are not finite, constant, huge or tiny do no harm."""
    only_if_cheap(is_slow, odd, {"nan", "huge"})
    values = ODD[odd]
    known = [
        Trial(t.number, t.params, TrialState.COMPLETED, {"loss": values[t.number % 3]})
        for t in history(MIXED, 12)
    ]
    MIXED.check(make(name, MIXED).suggest(known, [])[0])


@pytest.mark.parametrize("share", ["all", "half", "missing", "stopped"])
def test_survives_failures(name: str, is_slow: bool, share: str) -> None:
    """It proposes if trials fail, have no value or were stopped."""
    only_if_cheap(is_slow, share, {"all", "half"})
    known = history(TREE, 12, fail_every={"all": 1, "half": 2}.get(share, 0))
    if share == "missing":
        known = [Trial(t.number, t.params, TrialState.COMPLETED, {"other": 1.0}) for t in known]
    if share == "stopped":
        known = [
            Trial(t.number, t.params, TrialState.STOPPED, t.metrics, reports=t.reports)
            for t in known
        ]
    TREE.check(make(name, TREE).suggest(known, [])[0])


def test_goals_and_constraints(name: str) -> None:
    """Several goals and a constraint are understood."""
    suggester = make(
        name, MIXED, ["minimize loss", "maximize size"], constraints=["size <= 3"], seed=1
    )
    known = history(MIXED, 12, fail_every=6)
    pending = [Trial(20, MIXED.sample(np.random.default_rng(9))[0], TrialState.RUNNING)]
    MIXED.check(suggester.suggest(known, pending)[0])


def test_one_point_space(name: str) -> None:
    """A space of one configuration gives that one."""
    space = Space(Choice("only", ["this"]))
    assert make(name, space).suggest([], [])[0] == {"only": "this"}
