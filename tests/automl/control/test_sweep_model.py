"""A sweep in memory, in SQLite and in PostgreSQL does what a model of a few lines says."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import postgres
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from objectives import make_spec
from sweep_model import FINISHED, Model, Row, facts, facts_of, sweep_of

from automl.control.controller import attend
from automl.control.outcomes import Journal, ended
from automl.core import Command, Noted, TrialState
from automl.ledger import Ledger
from automl.ledger.database import Database, HeldError
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

LEASE_SECONDS = 1000.0
MORE = bool(os.environ.get("AUTOML_TEST_ALL"))
NUM_EXAMPLES = {"memory": 40, "every store": 10}
TRIALS = 4
MAX_RETRIES = 1
NUMBERS = st.integers(0, 20)
LOSSES = st.integers(1, 9).map(float)
LATE = st.sampled_from([None, 0, 0, -1, 1])
AGENTS = st.sampled_from(["ann", "bob"])
ENDINGS = [
    ("completed", None, False, None),
    ("stopped", None, False, None),
    ("paused", None, False, None),
    ("interrupted", None, False, None),
    ("interrupted", None, False, "interrupt"),
    ("failed", "out_of_memory", False, None),
    ("failed", "preempted", False, None),
    ("failed", "crashed", True, None),
]
TIMES = ("at", "seconds", "until", "sent", "recorded")


class World:
    """The clock of the stores, and the processes that hold sweeps; the test moves both on."""

    def __init__(self) -> None:
        self.now = self.process = self.num_sweeps = 0

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Database.clock
        monkeypatch.setattr(Database, "clock", lambda *it: clock(*it) + self.passed)
        monkeypatch.setattr(f"{Ledger.__module__}.process_started", lambda pid: 10.0 * self.process)

    @property
    def passed(self) -> float:
        return 2 * LEASE_SECONDS * self.now


class Store:
    """One store, and the process that works on it.

    Args:
        open_ledger: opens it anew.
        durable: it outlives a process; else a sweep in it can be taken as if its holder had died.
    """

    def __init__(self, open_ledger: Callable[[], Any], *, durable: bool = True) -> None:
        self._open = open_ledger
        self.durable = durable
        self.ledger = open_ledger()
        self.recorder: Any = None

    def hold(self, sweep: str) -> None:
        self.recorder = self.ledger.hold(sweep)

    def release(self, sweep: str) -> None:
        self.ledger.release(sweep)
        self.recorder = None

    def lose(self, sweep: str) -> None:
        """The process dies: it gives nothing back, and what it has not committed is gone."""
        found = self.ledger._held.pop(sweep)
        writer = Journal(found, float)
        begun = writer.begin(writer.propose({"lr": 0.05, "optimizer": "sgd"}, "lost"))
        writer.apply(Report(begun.number, 1, 0, 0, {"loss": 0.0}, 1.0))
        found._connection.close()
        if found._lock:
            found._lock.close()
        if self.durable:
            self.ledger.close()
            self.ledger = self._open()
        self.recorder = None


def timeless(value: Any) -> Any:
    """Plain data without what the clock of the machine decides."""
    if isinstance(value, Outcome):
        return timeless(vars(value))
    if isinstance(value, Mapping):
        return {key: timeless(one) for key, one in value.items() if key not in TIMES}
    return [timeless(one) for one in value] if isinstance(value, tuple | list) else value


class Sweeps(RuleBasedStateMachine):
    """Requests, controllers that are lost, and agents that are, in every store alike."""

    def __init__(self, stores: dict[str, Store], world: World) -> None:
        super().__init__()
        self.stores, self.world = stores, world
        world.num_sweeps += 1
        self.sweep = f"s{world.num_sweeps}"
        self.model = Model(TRIALS, MAX_RETRIES)
        self.stored: list[Row] = []
        self.closed = "interrupted"
        self.held = False

    @initialize(budget=st.integers(1, TRIALS))
    def begin_sweep(self, budget: int) -> None:
        self.model.budget = budget
        spec = make_spec(
            self.sweep,
            trials=budget,
            max_retries=MAX_RETRIES,
            resumable=True,
            seed=self.world.num_sweeps,
        )
        for store in self.stores.values():
            assert store.ledger.create_sweep(spec, rename=False) == self.sweep

    # what anybody sends, at any time

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        trial: int | None = None,
        by: str = "eve",
        *,
        waits: bool = True,
    ) -> None:
        """Send a command; unless it `waits`, it is answered at once if no controller runs."""
        command = Command(kind, content, trial, by=by)
        self.model.send(command, self.world.now)
        numbers = {
            tuple(store.ledger.append(self.sweep, command)) for store in self.stores.values()
        }
        assert self.held or len(numbers) == 1
        if not waits and not self.held:
            self.serve(stop=False)

    @rule(lr=st.floats(1e-4, 1e-2))
    def enqueue(self, lr: float) -> None:
        self.send("enqueue", {"lr": lr, "optimizer": "sgd"})

    @rule(high=st.floats(1e-3, 1e-2) | st.none())
    def pin(self, high: float | None) -> None:
        self.send("limits", {"lr": None if high is None else {"low": 1e-4, "high": high}})

    @rule(trials=st.integers(1, 2 * TRIALS), waits=st.booleans())
    def set_budget(self, trials: int, waits: bool) -> None:
        self.send("budget", {"trials": trials}, waits=waits)

    @rule(
        kind=st.sampled_from(["stop", "pause", "resume"]),
        number=NUMBERS,
        waits=st.booleans(),
    )
    def steer(self, kind: str, number: int, waits: bool) -> None:
        self.send(f"{kind}_trial", {}, self.any_trial(number), waits=waits)

    @rule(by=AGENTS, waits=st.booleans())
    def ask(self, by: str, waits: bool) -> None:
        content = {"seconds": LEASE_SECONDS, "wait": LEASE_SECONDS}
        self.send("ask", content, by=by, waits=waits)

    @rule(number=NUMBERS, late=LATE, step=st.integers(0, 3), loss=LOSSES, waits=st.booleans())
    def report_of_agent(
        self, number: int, late: int | None, step: int, loss: float, waits: bool
    ) -> None:
        content = {"attempt": late, "step": step, "metrics": {"loss": loss}}
        self.of_agent("report", number, content, waits)

    @rule(number=NUMBERS, late=LATE, loss=LOSSES, waits=st.booleans())
    def tell(self, number: int, late: int | None, loss: float, waits: bool) -> None:
        self.of_agent("tell", number, {"attempt": late, "metrics": {"loss": loss}}, waits)

    @rule(
        number=NUMBERS,
        late=LATE,
        failure=st.sampled_from(["out_of_memory", "preempted", "crashed"]),
        waits=st.booleans(),
    )
    def fail(self, number: int, late: int | None, failure: str, waits: bool) -> None:
        self.of_agent("fail", number, {"attempt": late, "failure": failure, "message": ""}, waits)

    def of_agent(self, kind: str, number: int, content: dict[str, Any], waits: bool) -> None:
        """About a trial that an agent holds; `attempt` counts from its newest."""
        rows = self.model.rows
        if not any(row.agent for row in rows):
            self.ask("ann", waits=False)
        leased = [trial for trial, row in enumerate(rows) if row.agent]
        trial = leased[number % len(leased)] if leased else self.any_trial(number)
        if content["attempt"] is not None:
            content["attempt"] += rows[trial].attempts if trial < len(rows) else 1
        holder = rows[trial].agent if trial < len(rows) else ""
        by = "eve" if number % 4 == 3 else holder or "ann"  # eve holds no trial
        self.send(kind, content, trial, by, waits=waits)

    def any_trial(self, number: int) -> int:
        """A trial, or the one after the last, which does not exist."""
        return number % (len(self.model.rows) + 1)

    @rule()
    def leases_run_out(self) -> None:
        self.world.now += 1

    # a moment without a controller: somebody answers all that waits

    @precondition(lambda self: not self.held)
    @rule(stop=st.sampled_from([False, False, False, True]))
    def serve(self, stop: bool) -> None:
        self.model.serve(stop, self.world.now)
        for store in self.stores.values():
            assert attend(store.ledger, self.sweep, stop="asked" if stop else "")
        self.note_commit()

    # a controller holds the sweep, with workers

    @precondition(lambda self: not self.held)
    @rule()
    def hold(self) -> None:
        for store in self.stores.values():
            store.hold(self.sweep)
        self.held, self.model.lost = True, False

    def act(self, do: Callable[[Journal], object]) -> None:
        for store in self.stores.values():
            do(Journal(store.recorder, float))

    def of_workers(self, *states: str) -> list[tuple[int, Row]]:
        """The trials in these states that no agent holds; none while nobody holds the sweep."""
        rows = self.model.rows if self.held else []
        return [one for one in enumerate(rows) if one[1].state in states and not one[1].agent]

    def running(self, which: int, *others: str) -> tuple[int, Row]:
        """A running trial, or one in these other states; one begins if there is none."""
        if not self.of_workers("running", *others):
            if not self.of_workers("waiting"):
                self.propose(1e-3)
            self.begin(1)
        return one_of(self.of_workers("running", *others), which)

    @precondition(lambda self: self.held)
    @rule(lr=st.floats(1e-4, 1e-2))
    def propose(self, lr: float) -> None:
        self.act(lambda writer: writer.propose({"lr": lr, "optimizer": "adam"}, "test"))
        self.model.propose()

    @precondition(lambda self: self.of_workers("waiting"))
    @rule(slots=st.integers(1, 2))
    def begin(self, slots: int) -> None:
        number, row = self.of_workers("waiting")[0]
        self.model.begin(row)
        started = Started(number, row.attempts, "host:1")
        self.act(lambda writer: writer.begin(writer.trials[number], slots))
        self.act(lambda writer: writer.apply(started))

    @precondition(lambda self: self.held)
    @rule(which=NUMBERS, late=st.integers(0, 1), sequence=st.integers(0, 3), loss=LOSSES)
    def report(self, which: int, late: int, sequence: int, loss: float) -> None:
        """Perhaps once more, out of order, or of an attempt that is over."""
        number, row = self.running(which, *FINISHED)
        attempt = row.attempts - late
        row.report(attempt, sequence, sequence, loss)
        report = Report(number, attempt, sequence, sequence, {"loss": loss}, 1.0)
        self.act(lambda writer: writer.apply(report))

    @precondition(lambda self: self.held)
    @rule(which=NUMBERS, how=st.sampled_from(ENDINGS))
    def end(self, which: int, how: tuple[str, str | None, bool, str | None]) -> None:
        """Twice: the second changes nothing."""
        number, row = self.running(which)
        ending, failure, lost, stop = how
        outcome = Outcome(
            number, row.attempts, Ending(ending), {"loss": 1.0}, failure, worker_lost=lost
        )
        sweep_stop = StopRequest(stop) if stop else None
        self.model.end(row, ending, failure, lost=lost, stop=stop)

        def end(journal: Journal) -> None:
            trial = journal.trials[number]
            journal.apply(ended(journal.spec, trial, outcome, journal.now, sweep_stop))

        self.act(end)
        self.act(end)

    @precondition(lambda self: self.of_workers("paused", "interrupted"))
    @rule(which=NUMBERS, state=st.sampled_from(["waiting", "stopped"]))
    def move(self, which: int, state: str) -> None:
        number, row = one_of(self.of_workers("paused", "interrupted"), which)
        self.model.move(row, state)
        self.act(lambda w: w.move(w.trials[number], TrialState(state), "moved"))

    @precondition(lambda self: self.held)
    @rule()
    def look(self) -> None:
        for store in self.stores.values():
            store.recorder.look()
            assert sweep_of(store.recorder.state) == self.expected(self.model.closed)

    @precondition(lambda self: self.held)
    @rule()
    def commit(self) -> None:
        for store in self.stores.values():
            store.recorder.commit()
        self.note_commit()

    @precondition(lambda self: self.held)
    @rule()
    def second_holder(self) -> None:
        for store in self.stores.values():
            if store.durable:
                with pytest.raises(HeldError):
                    store.ledger.hold(self.sweep, brief=True)

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        self.commit()
        for store in self.stores.values():
            store.release(self.sweep)
        self.held = False

    @precondition(lambda self: self.held)
    @rule()
    def lose(self) -> None:
        """The process that holds the sweep is killed, in the middle of a trial."""
        self.running(0)
        self.commit()
        self.world.process += 1
        for store in self.stores.values():
            store.lose(self.sweep)
        self.held, self.model.lost = False, True

    # what must be true

    def note_commit(self) -> None:
        self.stored, self.closed = deepcopy(self.model.rows), self.model.closed

    @invariant()
    def every_store_is_as_the_model_says(self) -> None:
        for name, store in self.stores.items():
            rows, closed = self.model.rows, self.model.closed
            if store.recorder is not None:
                assert facts_of(store.recorder.state.trials) == facts(rows), name
            rows, closed = self.stored, self.closed
            follower = store.ledger.follow(self.sweep)
            follower.refresh()
            seen, state = follower.snapshot(), follower.state
            assert [str(trial.state) for trial in seen.trials] == [row.state for row in rows]
            assert facts_of(state.trials) == facts(rows), name
            assert sweep_of(state) == self.expected(closed), name

    def expected(self, closed: str) -> list[Any]:
        """What `sweep_of` a state is."""
        model = self.model
        kinds = [command.kind for command, _ in model.waiting]
        return [closed, model.limits, kinds, model.budget]

    def teardown(self) -> None:
        """All logs are alike, and nothing was suggested outside of the limits."""
        if self.held:
            self.release()
        logs = {name: self.log(store) for name, store in self.stores.items()}
        for name, log in logs.items():
            pairs = zip(log, logs["memory"], strict=False)
            assert not [pair for pair in pairs if pair[0] != pair[1]][:1], name
            assert len(log) == len(logs["memory"]), name
        limits: dict[str, Any] = {}
        for kind, event in logs["memory"]:
            if kind == "Command" and event["kind"] == "limits":
                limits = event["content"]["lr"] or {}
            if kind == "Proposed" and event["source"] == "random" and limits:
                assert limits["low"] <= event["params"]["lr"] <= limits["high"]

    def log(self, store: Store) -> list[tuple[str, Any]]:
        """The events of the sweep, without notes and without what clocks decide."""
        events = store.ledger.events(self.sweep)
        return [(type(e).__name__, timeless(vars(e))) for e in events if not isinstance(e, Noted)]


def one_of(found: list[tuple[int, Row]], which: int) -> tuple[int, Row]:
    return found[which % len(found)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, if it can be: each commit of SQLite waits for the disk."""
    shared = Path("/dev/shm")
    found = tempfile.mkdtemp(prefix="automl-", dir=shared if os.access(shared, os.W_OK) else None)
    yield Path(found)
    shutil.rmtree(found)


@pytest.mark.parametrize("kind", ["memory", "every store"])
def test_a_sweep_is_as_the_model_says(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world = World()
    world.patch(monkeypatch)
    stores = {"memory": Store(partial(Ledger.open, "sqlite://"), durable=False)}
    num_examples = NUM_EXAMPLES[kind]
    with ExitStack() as stack:
        if kind != "memory":
            places: dict[str, Any] = {"SQLite": folder}
            if postgres.missing() is None:
                places["PostgreSQL"] = stack.enter_context(postgres.server()).database()
            for name, place in places.items():
                stores[name] = Store(partial(Ledger.open, place, create=True))
        machine: Any = partial(Sweeps, stores, world)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=20 * num_examples if MORE else num_examples,
                stateful_step_count=40,
                deadline=None,
                phases=[Phase.generate, *([Phase.shrink] if MORE else [])],
                derandomize=not MORE,
                suppress_health_check=list(HealthCheck),
            ),
        )
    if kind != "memory" and (why := postgres.missing()):
        pytest.skip(f"memory and SQLite do, and there is no third store: {why}")
