"""Random spaces, histories and failures for the default suggester, and a check of its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from automl.core.goals import Constraint, Goal
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from search_spaces import Choice, Float, Int, Space

EXTREMES = [0.0, -1.0, 1.0, 1e300, -1e300, 1e-300, 3.5, math.nan, math.inf, -math.inf]
FAILURES = ["out_of_memory", "non_finite", "timeout", "crashed", "preempted"]
CONSTRAINTS = ["a * b <= 40", "a % b == 0", "a + b == 9", "b <= 2"]


@dataclass(frozen=True)
class Case:
    """The arguments of one call."""

    space: Space
    goals: list[Goal]
    limits: list[Constraint]
    history: list[Trial]
    pending: list[Trial]
    count: int
    seed: int


@st.composite
def spaces(draw: Any) -> Space:
    """Draw one to seven parameters; some are conditional, constrained, or have one value only."""
    parameters: list[Any] = [Choice("root", ["a", "b", "c"])]
    for i in range(draw(st.integers(0, 4))):
        when = draw(st.sampled_from([None, {"root": "a"}, {"root": ["b", "c"]}]))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            parameters.append(Float(f"p{i}", 1e-6, 1e3, log=True, when=when, affects={"quality"}))
        elif kind == 1:
            parameters.append(
                Int(f"p{i}", -3, draw(st.integers(-3, 10_000)), when=when, affects={"speed"})
            )
        elif kind == 2:
            choices = [1, 2, 8][: draw(st.integers(1, 3))]
            parameters.append(
                Choice(f"p{i}", choices, ordered=True, when=when, affects={"memory", "speed"})
            )
        elif kind == 3:
            parameters.append(Choice(f"p{i}", [False, True], when=when))
        elif kind == 4:
            parameters.append(Float(f"p{i}", 0.5, 0.5, when=when))
        else:
            parameters.append(Float(f"p{i}", -1.0, 1.0, when=when))
    constraints: list[str] = draw(st.lists(st.sampled_from(CONSTRAINTS), max_size=2, unique=True))
    if constraints:
        parameters += [Int("a", 1, 64), Int("b", 1, 64)]
    return Space(*parameters, constraints=constraints)


@st.composite
def cases(draw: Any) -> Case:
    """Draw a space, up to 14 finished and 2 pending trials, 1 or 2 goals, at most 1 constraint."""
    space = draw(spaces())
    seed = draw(st.integers(0, 2**31))
    count = draw(st.integers(0, 14))
    rng = np.random.default_rng(seed)
    scale = draw(st.sampled_from([1.0, 1.0, 1e-200, 1e300]))
    history = [
        _trial(draw, i, params, rng, scale) for i, params in enumerate(space.sample(rng, count))
    ]
    goals = [Goal("loss", within=draw(st.sampled_from([None, 10.0]))), Goal("cost", True)][
        : draw(st.integers(1, 2))
    ]
    limits = [Constraint("cost", 1.0)][: draw(st.integers(0, 1))]
    waiting = space.sample(rng, draw(st.integers(0, 2)))
    pending = [Trial(count + i, params, TrialState.RUNNING) for i, params in enumerate(waiting)]
    return Case(space, goals, limits, history, pending, draw(st.integers(1, 2)), seed % 1000)


def _trial(draw: Any, number: int, params: Any, rng: np.random.Generator, scale: float) -> Trial:
    peak = draw(st.sampled_from([None, 10, 2**40]))
    ending = draw(st.integers(0, 9))
    if ending < 3:
        kind = draw(st.sampled_from(FAILURES))
        return Trial(number, params, TrialState.FAILED, failure=kind, peak_memory_bytes=peak)
    ordinary = scale * float(rng.standard_normal())
    value = draw(st.sampled_from(EXTREMES) | st.floats()) if ending == 3 else ordinary
    steps = draw(st.integers(0, 3))
    reports = tuple(ReportPoint(s + 1, {"loss": value}, 0.1 * s) for s in range(steps))
    metrics = {} if ending == 4 else {"loss": value, "cost": value}
    state = TrialState.STOPPED if ending == 5 else TrialState.COMPLETED
    return Trial(number, params, state, metrics, peak_memory_bytes=peak, reports=reports)


def check(case: Case) -> None:
    """Raise AssertionError unless the answer is legal, new and complete."""
    space = case.space
    known = [*case.history, *case.pending]
    suggester = BayesSuggester(space, case.goals, case.limits, seed=case.seed)
    found = suggester.suggest(case.history, case.pending, case.count)
    taken = {space.key(trial.params) for trial in known}
    fresh = {space.key(params) for params in found}
    assert all(space.legal(params) for params in found), "an illegal suggestion"
    assert len(fresh) == len(found), "the same suggestion twice"
    assert not fresh & taken, "a suggestion that was tried before"
    if len(found) < case.count:
        assert space.size is not None, "too few suggestions from an infinite space"
        assert _exhausted(space, taken | fresh), "too few suggestions from a space that has more"


def _exhausted(space: Space, taken: set[Any]) -> bool:
    return all(space.key(params) in taken for params in space.sample(np.random.default_rng(0), 200))
