from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from objectives import SPACE

import automl
from automl.core import Trial, TrialIndex, TrialState
from automl.errors import AutomlError
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import FALLBACK, Proposer
from automl.suggesters.queue import BackgroundSuggestionQueue
from automl.suggesters.random import RandomSuggester


class Counting(Suggester):
    """Proposes 0.001, 0.002, ... and waits until it may."""

    name = "counting"
    calls: list[tuple[int, int, int]]
    may = threading.Event()
    fails = False

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> Any:
        assert self.may.wait(30)
        if self.fails:
            raise RuntimeError("singular")
        self.calls.append((len(history), len(pending), count))
        first = 1 + sum(call[2] for call in self.calls[:-1])
        return [{"lr": (first + i) / 1000, "optimizer": "sgd"} for i in range(count)]


@pytest.fixture
def counting() -> Counting:
    suggester = Counting(SPACE, ())
    suggester.calls, suggester.may = [], threading.Event()
    suggester.may.set()
    return suggester


@pytest.fixture
def suggestions(counting: Counting) -> Iterator[BackgroundSuggestionQueue]:
    proposer = Proposer(lambda name, domain: counting, FALLBACK, Domain(SPACE))
    queue = BackgroundSuggestionQueue(proposer)
    yield queue
    counting.may.set()
    queue.close()


def sweep_of(*states: TrialState) -> TrialIndex:
    """A sweep with one trial in each of these states."""
    history = TrialIndex()
    for number, state in enumerate(states):
        history.update(Trial(number, {"lr": 0.05 + number / 1000, "optimizer": "adam"}, state))
    return history


RUNNING, DONE = TrialState.RUNNING, TrialState.COMPLETED


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def take(
    suggestions: BackgroundSuggestionQueue, history: TrialIndex, count: int = 1
) -> list[float]:
    found: list[float] = []

    def arrived() -> bool:
        found.extend(float(p.params["lr"]) for p in suggestions.take(history, count - len(found)))
        return len(found) >= count

    until(arrived)
    return found


def test_a_proposal_is_begun_when_it_is_wanted_and_knows_what_has_ended(
    counting: Counting, suggestions: BackgroundSuggestionQueue
) -> None:
    suggestions.prepare(sweep_of(RUNNING))
    assert take(suggestions, sweep_of(DONE)) == [0.001]
    assert take(suggestions, sweep_of(DONE, DONE, RUNNING)) == [0.002]
    assert counting.calls == [(1, 0, 1), (2, 1, 1)]


def made_ahead(
    suggestions: BackgroundSuggestionQueue, history: TrialIndex, seconds: float
) -> list[float]:
    """What is ready after `prepare`."""
    suggestions.prepare(history, seconds)
    until(lambda: suggestions.state != "suggesting" or bool(suggestions.prepare(history, 0.0)))
    return [float(proposal.params["lr"]) for proposal in suggestions.ready]


def test_one_is_made_ahead_if_trials_take_longer_than_suggestions(
    counting: Counting, suggestions: BackgroundSuggestionQueue
) -> None:
    first, busy = sweep_of(RUNNING), sweep_of(RUNNING, RUNNING)
    assert made_ahead(suggestions, busy, 100.0) == [], "nobody knows how long a suggestion takes"
    assert take(suggestions, first) == [0.001]
    assert made_ahead(suggestions, busy, 0.0) == []
    assert made_ahead(suggestions, busy, 100.0) == [0.002]
    assert made_ahead(suggestions, busy, 100.0) == [0.002], "nothing new has come"
    later = sweep_of(DONE, RUNNING, RUNNING)
    assert made_ahead(suggestions, later, 100.0) == [0.003], "a newer one replaces it"
    counting.may.clear()
    assert take(suggestions, sweep_of(DONE, DONE, RUNNING)) == [0.003], "without waiting"


def test_an_answer_from_before_new_limits_is_dropped(
    counting: Counting, suggestions: BackgroundSuggestionQueue
) -> None:
    counting.may.clear()
    assert suggestions.take(sweep_of(DONE), 1) == []
    suggestions.restrict(Domain(SPACE))
    counting.may.set()
    assert take(suggestions, sweep_of(DONE)) == [0.002]


def test_a_failure_in_the_thread_reaches_the_controller(
    counting: Counting, suggestions: BackgroundSuggestionQueue
) -> None:
    counting.fails = True
    with pytest.raises(AutomlError, match="singular"):
        until(lambda: bool(suggestions.take(sweep_of(), 1)))


ENDS_WHILE_IT_SUGGESTS = """
import threading, time
import torch
from automl.core.state import TrialIndex
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import Proposer
from automl.suggesters.queue import BackgroundSuggestionQueue
from search_spaces import Float, Space

space = Space(Float("x", 0.0, 1.0))
began = threading.Event()

class Slow(Suggester):
    name = "slow"

    def suggest(self, history, pending, count=1):
        began.set()
        end = time.monotonic() + 1
        x = torch.randn(200, 200, requires_grad=True)
        while time.monotonic() < end:
            torch.linalg.eigh(x @ x.T).eigenvalues.sum().backward()
        print("suggested", flush=True)
        return [{"x": 0.5}] * count

proposer = Proposer(lambda name, domain: Slow(space, ()), "slow", Domain(space))
suggestions = BackgroundSuggestionQueue(proposer)
suggestions.take(TrialIndex(), 1)
began.wait()
suggestions.close()
print("closed", flush=True)
"""


def test_a_program_that_ends_while_torch_suggests_is_not_aborted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_IT_SUGGESTS], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["closed", "suggested"]


class Watching(RandomSuggester):
    """Notes what each suggestion knows: the trials before it, and those that run."""

    name = "watching"
    seen: ClassVar[list[tuple[int, int]]] = []

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> Any:
        assert count == 1
        self.seen.append((len(history), len(pending)))
        return super().suggest(history, pending, count)


def quick(trial: Any) -> float:
    x = trial.params["x"]
    return math.nan if x > 0.67 else (x - 0.6) ** 2


def swept(store: Path, **settings: Any) -> list[tuple[Any, Any, Any]]:
    result = automl.sweep(
        quick, {"x": (0.0, 1.0)}, "minimize loss", store=store, progress=False, **settings
    )
    return [(trial.params, trial.value, trial.replicate_of) for trial in result.trials]


@pytest.mark.parametrize(("dispatcher", "workers"), [("inline", 1), ("local", 1), ("local", 2)])
def test_each_suggestion_of_a_quick_sweep_knows_every_outcome_before_it(
    tmp_path: Path, dispatcher: str, workers: int
) -> None:
    Watching.seen.clear()
    swept(tmp_path, trials=12, suggester=Watching, dispatcher=dispatcher, workers=workers)
    if workers == 1:
        assert Watching.seen == [(n, 0) for n in range(12)]
    assert max(pending for _, pending in Watching.seen) <= workers
    assert len(Watching.seen) == 12


def test_a_seed_gives_the_same_sweep_inline_and_in_a_worker(tmp_path: Path) -> None:
    settings = {"trials": 9, "workers": 1, "seed": 3}
    inline = swept(tmp_path / "inline", dispatcher="inline", **settings)
    assert swept(tmp_path / "local", dispatcher="local", **settings) == inline
