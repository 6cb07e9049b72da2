"""Agents ask, report and tell: with and without a controller, at once, killed at any moment."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec, patient, run_inline
from processes import begin, of, start, wait_until

from automl.core import Command, TrialState
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import Database
from automl.workflows import steering

LONG = 3600.0
AGAIN: dict[str, Any] = {"sweep": "test", "trial": 0}


def created(store: Path | str, **fields: Any) -> Ledger:
    """A new store with a sweep for agents."""
    ledger = Ledger.open(store, create=True)
    ledger.create_sweep(make_spec(**fields))
    return ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path, trials=3)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the store ahead."""

    def set_ahead(seconds: float) -> None:
        monkeypatch.setattr(Database, "clock", lambda *_: time.time() + seconds)

    return set_ahead


@contextmanager
def ended(process: BaseProcess) -> Iterator[BaseProcess]:
    """Kill a process at the end of the block, if it still runs."""
    try:
        yield process
    finally:
        process.kill()
        process.join()


# ------------------------------------------------------------------ without a controller


def test_a_sweep_of_agents_alone_from_the_first_trial_to_the_last(ledger: Ledger) -> None:
    seen = []
    while (asked := steering.ask(ledger, "test"))["trial"] is not None:
        number = asked["trial"]
        steering.tell(ledger, "test", number, {"loss": 2.0}, step=1)
        with pytest.raises(UsageError, match="los is no goal; a goal is loss"):
            steering.tell(ledger, "test", number, {"los": 1.0})
        told = steering.tell(ledger, "test", number, {"loss": asked["params"]["lr"]})
        assert (told["state"], told["attempt"], told["same"]) == ("completed", 1, False)
        seen.append(asked["params"])
    assert asked["reason"] == "it is finished"
    trials = ledger.trials("test")
    assert [trial.params for trial in trials] == seen
    assert [trial.source for trial in trials] == ["default", "random", "random"]
    assert [len(trial.reports) for trial in trials] == [1, 1, 1]
    assert ledger.snapshot("test").state == "finished"
    alone = run_inline(ledger, make_spec("alone", trials=3))
    assert [trial.params for trial in alone.trials] == seen, "agents see what workers see"


def test_the_same_result_may_be_told_twice_and_another_may_not(ledger: Ledger) -> None:
    steering.ask(ledger, "test")
    steering.tell(ledger, "test", 0, {"loss": 0.5, "extra": float("inf")}, attempt=1)
    again = steering.tell(ledger, "test", 0, {"loss": 0.5, "extra": float("inf")}, attempt=1)
    assert (again["state"], again["same"]) == ("completed", True)
    with pytest.raises(
        AutomlError, match=r"trial 0 has ended already: it is completed, with loss=0\.5"
    ):
        steering.tell(ledger, "test", 0, {"loss": 0.4}, attempt=1)
    with pytest.raises(AutomlError, match="is over"):
        steering.tell(ledger, "test", 0, failed="crashed", attempt=1)
    assert ledger.trials("test")[0].metrics["loss"] == 0.5


def test_a_lost_agents_trial_goes_back_and_its_late_result_is_refused(
    ledger: Ledger, later: Callable[[float], None]
) -> None:
    first = steering.ask(ledger, "test", agent="ann")
    later(100.0)
    with pytest.raises(
        AutomlError, match=r"the lease of attempt 1 of trial 0 is over: .* ago, after 60 s"
    ):
        steering.tell(ledger, "test", 0, {"loss": 1.0}, attempt=1)
    assert ledger.trials("test")[0].state == "waiting"
    second = steering.ask(ledger, "test", agent="bob")
    assert (first["trial"], first["attempt"], first["resumed"]) == (0, 1, False)
    assert (second["trial"], second["attempt"], second["resumed"]) == (0, 2, True)
    assert second["params"] == first["params"]
    for step in (None, 1):
        with pytest.raises(AutomlError, match="runs attempt 2 with agent bob"):
            steering.tell(ledger, "test", 0, {"loss": 1.0}, step=step, attempt=1)
    steering.tell(ledger, "test", 0, {"loss": 2.0}, attempt=2)
    assert ledger.trials("test")[0].metrics["loss"] == 2.0


def test_a_result_that_was_sent_in_time_counts_however_late_it_is_read(
    ledger: Ledger, later: Callable[[float], None]
) -> None:
    steering.ask(ledger, "test")
    content = {"attempt": 1, "metrics": {"loss": 0.25}}
    (identity,) = ledger.append("test", Command("tell", content, 0, by="ann"))
    later(100.0)  # the agent was killed before it could serve its own request
    assert steering.ask(ledger, "test")["trial"] == 1
    answered, _ = ledger.answer("test", identity)
    assert answered is not None
    assert answered.content["state"] == "completed"
    assert ledger.trials("test")[0].metrics["loss"] == 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"failed": "bogus"}, "a failure is one of out_of_memory, "),
        ({"trial": 7, "metrics": {"loss": 1.0}}, "there is no trial 7: there are 2"),
        ({"metrics": {"acc": 1.0}}, "no metric 'loss' was reported"),
        ({"metrics": {"loss": "low"}}, "metric 'loss' must be a number"),
        ({"metrics": {}, "step": 1}, "step 1 of trial 0 cannot follow step 3"),
        ({"lease": 0}, "a lease must last longer than 0 s"),
        ({"sweep": "tset"}, "no sweep named 'tset'"),
    ],
)
def test_a_wrong_argument_leaves_the_trial_as_it_is(
    ledger: Ledger, given: dict[str, Any], message: str
) -> None:
    steering.ask(ledger, "test")
    steering.tell(ledger, "test", 0, {"acc": 1.0}, step=3)
    steering.ask(ledger, "test")
    steering.tell(ledger, "test", 1, {"loss": 1.0}, step=1)
    call: Any = steering.ask if {"lease", "sweep"} & set(given) else steering.tell
    with pytest.raises(UsageError, match=message):
        call(ledger, **({"sweep": "test"} if call is steering.ask else AGAIN) | given)
    assert ledger.trials("test")[0].state == "running"
    assert steering.tell(ledger, "test", 0, {"loss": 1.0})["state"] == "completed"


# ------------------------------------------------------------------ many at once


def ask_alone(store: str, answers: str) -> None:
    with closing(Ledger.open(store)) as ledger, Path(answers).open("a") as file:
        answer = steering.ask(ledger, "test", agent=str(os.getpid()))
        file.write(json.dumps([answer["trial"], answer["params"]]) + "\n")


def test_agents_that_ask_at_once_get_a_trial_each(tmp_path: Path) -> None:
    ledger, answers = created(tmp_path, trials=12, suggester="sobol"), tmp_path / "answers"
    for process in [start(ask_alone, str(tmp_path), str(answers)) for _ in range(12)]:
        process.join()
    found = sorted(map(json.loads, answers.read_text().splitlines()))
    trials = ledger.trials("test")
    assert found == [[trial.number, dict(trial.params)] for trial in trials]
    assert len({repr(trial.params) for trial in trials}) == 12
    assert len({trial.lease.agent for trial in trials if trial.lease}) == 12


# ------------------------------------------------------------------ beside a controller


@pytest.mark.parametrize("dispatcher", ["inline", "agents"])
def test_a_running_controller_answers(tmp_path: Path, dispatcher: str) -> None:
    ledger = created(tmp_path, trials=4)
    objective = patient if dispatcher == "inline" else None
    with ended(begin(tmp_path, make_spec(trials=4), objective, dispatcher=dispatcher)) as runs:
        wait_until(lambda: ledger.snapshot("test").num_slots > 0 or dispatcher == "agents")
        wait_until(lambda: ledger.snapshot("test").state == "running")
        asked = [steering.ask(ledger, "test") for _ in range(2)]
        assert len({one["trial"] for one in asked}) == 2
        for one in asked:
            number = one["trial"]
            steering.tell(ledger, "test", number, {"loss": 2.0}, step=1)
            steering.tell(ledger, "test", number, {"loss": 1.0}, attempt=1)
            assert steering.tell(ledger, "test", number, {"loss": 1.0}, attempt=1)["same"]
            trial = ledger.trials("test")[number]
            assert trial.worker.startswith("agent ")
        snapshot = ledger.snapshot("test")
        assert (snapshot.state, snapshot.brief) == ("running", False)
        assert runs.is_alive(), "an agent has taken the sweep over"
        workers = {trial.worker for trial in snapshot.trials}
        assert len(workers) == (2 if dispatcher == "inline" else 1)


def test_a_controller_killed_between_ask_and_tell_loses_nothing(tmp_path: Path) -> None:
    ledger = created(tmp_path, trials=4)
    with ended(begin(tmp_path, make_spec(trials=4), patient)):
        wait_until(lambda: of(ledger, 0, TrialState.RUNNING))
        asked = steering.ask(ledger, "test", lease=LONG)
        steering.tell(ledger, "test", asked["trial"], {"loss": 5.0}, step=1)
    steering.tell(ledger, "test", asked["trial"], {"loss": 4.0}, step=2, attempt=1)
    steering.tell(ledger, "test", asked["trial"], {"loss": 3.0}, attempt=1)
    trial = ledger.trials("test")[asked["trial"]]
    assert (trial.state, trial.attempts, len(trial.reports)) == ("completed", 1, 2)
    other = ledger.trials("test")[0]
    assert other.state is TrialState.WAITING, "the worker's trial goes back, as after a resume"
    assert steering.ask(ledger, "test")["trial"] == 0


# ------------------------------------------------------------------ what is kept


def test_nobody_speaks_for_the_trial_of_another(ledger: Ledger) -> None:
    steering.ask(ledger, "test", agent="ann")
    for call in (
        lambda: steering.tell(ledger, "test", 0, 1.0, agent="bob"),
        lambda: steering.tell(ledger, "test", 0, 1.0, agent="bob", attempt=1),
        lambda: steering.tell(ledger, "test", 0, 1.0, step=1),
        lambda: steering.tell(ledger, "test", 0, failed="crashed"),
    ):
        with pytest.raises(AutomlError, match="trial 0 is held by agent 'ann'"):
            call()
    assert steering.tell(ledger, "test", 0, 1.0, step=1, attempt=1)["stop"] is False
    assert steering.tell(ledger, "test", 0, 1.0, agent="ann")["state"] == "completed"


# ------------------------------------------------------------------ killed again and again


def work(store: str, done: str) -> None:
    """An agent that runs trials until none is left, and notes each answer that it got."""
    ledger = Ledger.open(store)
    while (asked := steering.ask(ledger, "test", lease=LONG))["trial"] is not None:
        number, attempt = asked["trial"], asked["attempt"]
        loss = float(asked["params"]["lr"])
        steering.tell(ledger, "test", number, {"loss": loss}, step=1, attempt=attempt)
        steering.tell(ledger, "test", number, {"loss": loss}, attempt=attempt)
        with Path(done).open("a") as file:
            file.write(f"{number}\n")
    ledger.close()


def test_agents_killed_at_any_moment_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Their leases last: what they held is left to them, all else goes on."""
    ledger = created(tmp_path, trials=10, max_retries=9)
    done = tmp_path / "done"
    done.touch()
    for delay in (0.0, 0.07, 0.19):
        pair = [start(work, str(tmp_path), str(done)) for _ in range(2)]
        before = done.read_text()
        while done.read_text() == before and any(process.is_alive() for process in pair):
            time.sleep(0.005)
        time.sleep(delay)
        for process in pair:
            process.kill()
            process.join()
        if ledger.snapshot("test").state == "finished":
            break
    last = start(work, str(tmp_path), str(done))
    last.join()
    assert last.exitcode == 0
    trials = ledger.trials("test")
    assert len(trials) == 10
    told = [int(line) for line in done.read_text().split()]
    assert len(told) == len(set(told)), "a trial was run twice"
    ended = {trial.number for trial in trials if trial.state is TrialState.COMPLETED}
    assert set(told) <= ended, "a result that was acknowledged is lost"
    assert all(trial.lease is not None for trial in trials if trial.number not in ended)
    Ledger.open(tmp_path).check()
