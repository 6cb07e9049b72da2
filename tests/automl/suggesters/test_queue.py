from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE

import automl
from automl.core.trial import Trial, TrialState
from automl.core.trial_index import TrialIndex
from automl.errors import AutomlError
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import FALLBACK, Proposer
from automl.suggesters.queue import BackgroundSuggestionQueue


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


def ahead(suggester: Counting, depth: int = 2) -> BackgroundSuggestionQueue:
    proposer = Proposer(lambda name, domain: suggester, "counting", Domain(SPACE))
    return BackgroundSuggestionQueue(proposer, SPACE, depth)


def begun() -> TrialIndex:
    """A sweep with one running trial."""
    history = TrialIndex()
    history.update(Trial(0, {"lr": 0.05, "optimizer": "adam"}, TrialState.RUNNING))
    return history


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def take(suggestions: BackgroundSuggestionQueue, history: TrialIndex, count: int) -> list[float]:
    found: list[float] = []

    def arrived() -> bool:
        found.extend(float(p.params["lr"]) for p in suggestions.take(history, count - len(found)))
        return len(found) >= count

    until(arrived)
    return found


def test_proposals_are_ready_before_they_are_asked_for(counting: Counting) -> None:
    suggestions, history = ahead(counting), begun()
    assert suggestions.take(history, 1) == []
    suggestions.prepare(history, 10, 100.0)
    assert take(suggestions, history, 2) == [0.001, 0.002]
    suggestions.close()


def test_the_first_of_a_sweep_is_made_alone(counting: Counting) -> None:
    suggestions, history = ahead(counting), TrialIndex()
    suggestions.prepare(history, 10, 100.0)
    assert take(suggestions, history, 1) == [0.001]
    suggestions.prepare(begun(), 10, 100.0)
    assert take(suggestions, begun(), 2) == [0.002, 0.003]
    assert counting.calls == [(0, 0, 1), (0, 1, 2)]
    suggestions.close()


def test_no_more_are_made_than_will_be_taken(counting: Counting) -> None:
    suggestions, history = ahead(counting, depth=4), TrialIndex()
    suggestions.prepare(history, 0, 100.0)
    suggestions.prepare(history, 1, 100.0)
    assert take(suggestions, history, 1) == [0.001]
    assert [call[2] for call in counting.calls] == [1]
    suggestions.close()


def test_a_result_refreshes_what_is_ready_and_the_old_serves_meanwhile(counting: Counting) -> None:
    suggestions, history = ahead(counting), begun()
    suggestions.prepare(history, 10, 100.0)
    assert take(suggestions, history, 1) == [0.001]
    counting.may.clear()
    history.update(Trial(1, {"lr": 0.06, "optimizer": "adam"}, TrialState.COMPLETED))
    suggestions.prepare(history, 10, 100.0)
    assert take(suggestions, history, 1) == [0.002]  # the fresh ones are still being made
    counting.may.set()
    assert take(suggestions, history, 2) == [0.003, 0.004]
    assert counting.calls[1][:2] == (1, 1)
    suggestions.close()


def test_a_proposal_that_was_begun_meanwhile_is_dropped(counting: Counting) -> None:
    suggestions, history = ahead(counting), begun()
    suggestions.prepare(history, 10, 100.0)
    history.update(Trial(1, {"lr": 0.001, "optimizer": "sgd"}, TrialState.RUNNING))
    assert take(suggestions, history, 1) == [0.002]
    suggestions.close()


def test_so_is_one_that_has_ended_meanwhile(counting: Counting) -> None:
    suggestions, history = ahead(counting), begun()
    suggestions.prepare(history, 10, 100.0)
    history.update(Trial(1, {"lr": 0.001, "optimizer": "sgd"}, TrialState.COMPLETED))
    assert take(suggestions, history, 1) == [0.002]
    suggestions.close()


def test_a_failure_in_the_thread_reaches_the_controller(counting: Counting) -> None:
    counting.fails = True
    proposer = Proposer(lambda name, domain: counting, FALLBACK, Domain(SPACE))
    suggestions, history = BackgroundSuggestionQueue(proposer, SPACE, 2), TrialIndex()
    suggestions.prepare(history, 10, 100.0)

    def failed() -> bool:
        suggestions.take(history, 1)
        return False

    with pytest.raises(AutomlError, match="singular"):
        until(failed)
    suggestions.close()


@pytest.mark.parametrize(("each", "wanted", "count"), [(3.0, 40, 16), (3.0, 5, 5), (0.5, 40, 4)])
def test_many_are_made_at_once_if_one_takes_longer_than_it_lasts(
    counting: Counting, each: float, wanted: int, count: int
) -> None:
    suggestions, history = ahead(counting), begun()
    suggestions._batches.extend([9.0, each])  # the first has imported what it needs
    suggestions.prepare(history, wanted, period=1.0)
    assert len(take(suggestions, history, count)) == count
    assert [call[2] for call in counting.calls] == [count]
    suggestions.close()


def test_a_first_suggestion_that_imports_torch_does_not_hurry(counting: Counting) -> None:
    suggestions, history = ahead(counting), begun()
    suggestions._batches.append(9.0)
    suggestions.prepare(history, 40, period=1.0)
    take(suggestions, history, 1)
    assert [call[2] for call in counting.calls] == [2], "as many as are kept ready, not 16"
    suggestions.close()


def test_a_worker_that_has_waited_too_long_gets_a_proposal_of_the_fallback(
    counting: Counting,
) -> None:
    counting.may.clear()
    made = {"counting": counting, FALLBACK: SUGGESTERS.get(FALLBACK)(SPACE, ())}
    notes: list[str] = []
    proposer = Proposer(lambda name, domain: made[name], "counting", Domain(SPACE))
    suggestions = BackgroundSuggestionQueue(proposer, SPACE, 2, note=notes.append)
    history = TrialIndex()
    suggestions.prepare(history, 9, 0.01, 0.02)
    assert suggestions.take(history, 1) == []
    time.sleep(0.03)
    assert [proposal.source for proposal in suggestions.take(history, 1)] == [FALLBACK]
    assert suggestions.take(history, 1) == [], "the next wait begins anew"
    assert len(notes) == 1
    assert "'counting' is slower than the trials" in notes[0]
    counting.may.set()
    suggestions.close()


def test_a_proposal_of_the_fallback_needs_no_import_that_the_thread_may_be_making(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    proposer = Proposer(
        lambda name, domain: SUGGESTERS.get(name)(SPACE, ()), "bayes", Domain(SPACE)
    )
    assert [proposal.source for proposal in proposer.propose_fallback([], [], 1)] == [FALLBACK]


ENDS_WHILE_IT_SUGGESTS = """
import threading, time
import torch
from automl.core.trial_index import TrialIndex
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
suggestions = BackgroundSuggestionQueue(proposer, space, 1)
suggestions.prepare(TrialIndex(), 1, 100.0)
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


class Three(Suggester):
    """A grid of three points over a range of real numbers."""

    name = "three"

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> Any:
        known = len(history) + len(pending)
        return [{"x": number / 2} for number in range(known, min(3, known + count))]


def test_a_suggester_with_nothing_left_ends_the_sweep(tmp_path: Path) -> None:
    result = automl.sweep(
        lambda trial: {"loss": trial.params["x"]},
        {"x": (0.0, 1.0)},
        "minimize loss",
        trials=10,
        suggester=Three,
        dispatcher="inline",
        store=tmp_path,
        progress=False,
    )
    assert [(t.params["x"], t.source) for t in result.trials] == [
        (0.0, "three"),
        (0.5, "three"),
        (1.0, "three"),
    ]
    assert result.state == "finished"
