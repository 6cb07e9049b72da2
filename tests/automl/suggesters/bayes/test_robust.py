"""Suggestions are legal and new, without exceptions, for every space, history and failure."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import HealthCheck, given, settings

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from benchmarks.suggesters.robust_cases import cases, check
from search_spaces import Choice, Float, Space


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_suggestions_are_legal_and_new(case):
    check(case)


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
     for i, p in enumerate(s.sample(np.random.default_rng(0), 30))]
b = BayesSuggester(s, [Goal("loss")], seed=3)
{warm}
print(b.suggest(h, [Trial(30, s.sample(np.random.default_rng(9))[0])], 2))
"""


def test_same_answer_in_any_process():
    variants = [(1, ""), (2, "b.suggest(h[:20], [])")]
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
