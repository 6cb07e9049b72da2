"""Suggestions are legal and new, without exceptions, for every space, history and failure."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from benchmarks.suggesters.robust_cases import cases, check
from search_spaces import Choice, Float, Int, Space


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_suggestions_are_legal_and_new(case):
    check(case)


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
    space = Space(
        Choice("a", ["u", "v"]), Int("b", 1, 4, when={"a": "u"}), Choice("c", [False, True])
    )
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    while found := suggester.suggest(history, []):
        history.append(
            Trial(len(history), found[0], TrialState.COMPLETED, {"loss": float(len(history) % 3)})
        )
    assert len(history) == space.size == 10


def test_two_hundred_parameters():
    space = Space(
        *(Float(f"x{i}", 0.0, 1.0) for i in range(150)),
        *(Choice(f"c{i}", ["a", "b", "c"]) for i in range(50)),
    )
    rng = np.random.default_rng(0)
    history = [
        Trial(i, p, TrialState.COMPLETED, {"loss": p["x3"]})
        for i, p in enumerate(space.sample(rng, 20))
    ]
    assert all(
        space.legal(p) for p in BayesSuggester(space, [Goal("loss")]).suggest(history, [], 2)
    )


def test_constraints_of_the_space_hold():
    space = Space(
        Int("a", 1, 64),
        Int("b", 1, 64),
        Float("x", 0.0, 1.0),
        constraints=["a % b == 0", "a * b <= 256"],
    )
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
from automl.core.goals import Goal
from automl.suggesters.bayes import BayesSuggester
from automl.core.trial import Trial, TrialState
from search_spaces import *
torch.set_num_threads({threads})
s = Space(
    Float("x", 0.0, 1.0),
    Int("n", 1, 9),
    Choice("c", ["a", "b"]),
    Float("w", 0.0, 1.0, when={{"c": "a"}}),
)
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
