"""Never illegal, never a duplicate, never an exception, whatever the space, the history and the failures."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automl.goals import Constraint, Goal
from automl.suggesters.bayes import BayesSuggester
from automl.trial import Trial, TrialState
from search_spaces import Choice, Float, Int, Space

EXTREMES = [0.0, -1.0, 1.0, 1e300, -1e300, 1e-300, 3.5, math.nan, math.inf, -math.inf]


@st.composite
def spaces(draw) -> Space:
    parameters = [Choice("root", ["a", "b", "c"])]
    for i in range(draw(st.integers(0, 4))):
        when = draw(st.sampled_from([None, {"root": "a"}, {"root": ["b", "c"]}]))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            parameters.append(Float(f"p{i}", 1e-6, 1e3, log=True, when=when))
        elif kind == 1:
            parameters.append(Int(f"p{i}", -3, draw(st.integers(-3, 10_000)), when=when))
        elif kind == 2:
            parameters.append(Choice(f"p{i}", [1, 2, 8][: draw(st.integers(1, 3))], ordered=True, when=when))
        elif kind == 3:
            parameters.append(Choice(f"p{i}", [False, True], when=when))
        else:
            parameters.append(Float(f"p{i}", -1.0, 1.0, when=when))
    return Space(*parameters)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(spaces(), st.integers(0, 2**31), st.integers(0, 14), st.data())
def test_suggestions_are_legal_and_new(space, seed, count, data):
    rng = np.random.default_rng(seed)
    history = []
    for i, params in enumerate(space.sample(rng, count)):
        if data.draw(st.booleans()):
            value = data.draw(st.sampled_from(EXTREMES) | st.floats())
            history.append(Trial(i, params, TrialState.COMPLETED, {"loss": value, "cost": value}))
        else:
            kind = data.draw(st.sampled_from(["out_of_memory", "non_finite", "preempted"]))
            history.append(Trial(i, params, TrialState.FAILED, failure=kind))
    goals = [Goal("loss"), Goal("cost", True)][: data.draw(st.integers(1, 2))]
    limits = [Constraint("cost", 1.0)][: data.draw(st.integers(0, 1))]
    pending = [Trial(count, space.sample(rng)[0], TrialState.RUNNING)]
    found = BayesSuggester(space, goals, limits, seed=seed % 1000).suggest(history, pending, 2)
    keys = [space.key(p) for p in found] + [space.key(t.params) for t in [*history, *pending]]
    assert all(space.legal(p) for p in found)
    assert len(set(keys)) >= len(found) + len({space.key(t.params) for t in [*history, *pending]})
    if len(found) < 2:
        assert space.size is not None
        assert space.size <= len(set(keys))


@pytest.mark.parametrize("value", [0.0, 1e300, math.nan])
def test_constant_metrics(value):
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    history = [
        Trial(i, p, TrialState.COMPLETED, {"loss": value})
        for i, p in enumerate(space.sample(np.random.default_rng(0), 12))
    ]
    assert len(BayesSuggester(space, [Goal("loss")]).suggest(history, [])) == 1


def test_one_point_space_is_exhausted():
    space = Space(Choice("a", ["only"]), Int("b", 3, 3))
    suggester = BayesSuggester(space, [Goal("loss")])
    (params,) = suggester.suggest([], [], 3)
    assert suggester.suggest([Trial(0, params, TrialState.COMPLETED, {"loss": 1.0})], []) == []


def test_every_point_of_a_finite_space_is_found_once():
    space = Space(Choice("a", ["u", "v"]), Int("b", 1, 4, when={"a": "u"}), Choice("c", [False, True]))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    while found := suggester.suggest(history, []):
        history.append(Trial(len(history), found[0], TrialState.COMPLETED, {"loss": float(len(history) % 3)}))
    assert len(history) == space.size == 10


def test_two_hundred_parameters():
    space = Space(
        *(Float(f"x{i}", 0.0, 1.0) for i in range(150)), *(Choice(f"c{i}", ["a", "b", "c"]) for i in range(50))
    )
    rng = np.random.default_rng(0)
    history = [Trial(i, p, TrialState.COMPLETED, {"loss": p["x3"]}) for i, p in enumerate(space.sample(rng, 20))]
    assert all(space.legal(p) for p in BayesSuggester(space, [Goal("loss")]).suggest(history, [], 2))


def test_constraints_of_the_space_hold():
    space = Space(Int("a", 1, 64), Int("b", 1, 64), Float("x", 0.0, 1.0), constraints=["a % b == 0", "a * b <= 256"])
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(14):
        (params,) = suggester.suggest(history, [])
        assert space.legal(params)
        history.append(Trial(i, params, TrialState.COMPLETED, {"loss": -params["a"] * params["x"]}))


def test_all_failed_goes_on_suggesting():
    space = Space(Float("x", 0.0, 1.0), Choice("c", ["a", "b"]))
    history = [
        Trial(i, p, TrialState.FAILED, failure="crashed")
        for i, p in enumerate(space.sample(np.random.default_rng(0), 30))
    ]
    assert len(BayesSuggester(space, [Goal("loss")]).suggest(history, [], 3)) == 3


SCRIPT = """
import numpy as np, torch
from automl.goals import Goal
from automl.suggesters.bayes import BayesSuggester
from automl.trial import Trial, TrialState
from search_spaces import *
torch.set_num_threads({threads})
s = Space(Float("x", 0.0, 1.0), Int("n", 1, 9), Choice("c", ["a", "b"]), Float("w", 0.0, 1.0, when={{"c": "a"}}))
h = [Trial(i, p, TrialState.COMPLETED, {{"loss": (p["x"] - 0.3) ** 2 + p["n"]}}) if i % 5 else
     Trial(i, p, TrialState.FAILED, failure="out_of_memory")
     for i, p in enumerate(s.sample(np.random.default_rng(0), 70))]
b = BayesSuggester(s, [Goal("loss")], seed=3)
{warm}
print(b.suggest(h, [Trial(70, s.sample(np.random.default_rng(9))[0])], 2))
"""


def test_same_answer_in_any_process():
    variants = [(1, ""), (2, "b.suggest(h[:40], [])"), (2, "b.suggest(h, [], 3)")]
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(threads=threads, warm=warm)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads, warm in variants
    }
    assert len(answers) == 1
    assert "'x'" in answers.pop()
