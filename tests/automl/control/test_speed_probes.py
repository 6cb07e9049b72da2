"""Probes of settings of speed inside a sweep: what they cost, what they change, what they leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from objectives import make_spec
from torch import nn

import automl
from automl import sweeps
from automl.control.speed_probes import LOST, MAX_SHARE, SpeedProbes
from automl.control.writer import writing
from automl.core import (
    Budget,
    Command,
    ProbeEnded,
    Proposed,
    Snapshot,
    SweepSpec,
    Trial,
    TrialState,
)
from automl.core.probes import SLOTS, SPEED, ProbeAccount, measured
from automl.ledger import Ledger
from automl.report.record import Record
from automl.report.setup import settings
from search_spaces import Choice, Float, Space
from workers.protocol import Ending, Outcome

pytestmark = pytest.mark.usefixtures("lease_folder")
RATE = Float("rate", 0.1, 1.0, default=0.5)
PARTS = Choice("accumulation", [1, 4], default=4, affects={"speed", "memory"})
PAUSE = Choice("pause", ["short", "long"], default="short", affects={"speed"})


def loop(trial: Any) -> dict[str, float]:
    """Eight rows a batch; a part of it takes a time of its own."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.params["rate"])
    steps = 6 if trial.number >= 0 else 10**6  # a probe ends by itself
    batches = [torch.ones(8, 4)] * steps
    model, optimizer, batches = trial.prepare(model, optimizer, batches)
    for step, batch in enumerate(batches):
        time.sleep(0.02)
        loss = model(batch).square().mean()
        trial.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if not trial.report(step, loss=loss):
            break
    return {"loss": float(loss)}


def pausing(trial: Any) -> dict[str, float]:
    """A probe of the long pause takes longer than all probes may."""
    slow = trial.number < 0 and trial.params["pause"] == "long"
    for step in range(6):
        time.sleep(60 if slow and step == 2 else 0.01)
        trial.report(step, loss=1.0)
    return {"loss": trial.params["rate"]}


def run_until(
    ledger: Ledger, spec: SweepSpec, objective: Any, enough: Callable[[Snapshot], bool]
) -> Snapshot:
    """Run a sweep, and stop it once there is enough."""

    def look(snapshot: Snapshot) -> None:
        if enough(snapshot):
            ledger.send(spec.name, Command("stop", {}))

    return sweeps.run(
        spec, ledger=ledger, objective=objective, dispatcher="local", on_change=look, resume=True
    )


def both_measured(snapshot: Snapshot) -> bool:
    """Whether two settings are measured, and four trials have begun after them."""
    ends = [probe.ended for probe in snapshot.probes if probe.ended is not None]
    return len(ends) == 2 and sum((t.started or 0.0) > ends[1] for t in snapshot.trials) > 3


def test_trials_train_with_the_fastest_settings_of_probes_that_are_no_trials(
    tmp_path: Path,
) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(space=Space(RATE, PARTS), budget=Budget(time=6000.0), workers=2)
    ledger.create_sweep(spec)
    ended = run_until(ledger, spec, loop, both_measured)
    assert [probe.params["accumulation"] for probe in ended.probes] == [4, 1]
    assert [probe.params["rate"] for probe in ended.probes] == [0.5, 0.5]
    assert [probe.failure for probe in ended.probes] == [None, None]
    assert all(probe.metrics[SPEED] > 0 for probe in ended.probes)
    fast = max(measured(ended.probes, spec), key=lambda one: one.speed).params["accumulation"]
    assert fast == 1
    events = list(ledger.events("test"))
    last = max(i for i, event in enumerate(events) if isinstance(event, ProbeEnded))
    later = [event for event in events[last:] if isinstance(event, Proposed)]
    assert len(later) > 2
    assert {event.params["accumulation"] for event in later} == {1}
    assert [trial.number for trial in ended.trials] == list(range(len(ended.trials)))
    assert all(SPEED not in trial.metrics for trial in ended.trials)

    again = ledger.state("test")
    assert tuple(again.probes) == ended.probes
    account = ProbeAccount.of(ended.probes, ended.trials, spec)
    assert again.use.probe_seconds == pytest.approx(account.cost)
    assert account.cost < MAX_SHARE * 6000 * 2
    assert account.speedup > 1
    assert not (ledger.files("test").path / "probes").exists()
    rows = dict(settings(Record.read(ledger, "test")))
    assert rows["probes of speed"].startswith("2 took ")
    assert "times as fast as those of trial 0" in rows["probes of speed"]


@pytest.mark.parametrize(
    ("goals", "strategy"), [("minimize loss within 9s", "ddp"), ("minimize loss", "single")]
)
def test_probes_do_not_decide_on_slots_if_a_goal_asks_for_speed(goals: str, strategy: str) -> None:
    kinds = Choice("parallelism", ["single", "ddp"], affects={"speed", "memory"})
    spec = make_spec(space=Space(RATE, PARTS, kinds), goals=goals)

    def probe(number: int, kind: str, parts: int, speed: float) -> Trial:
        params = {"rate": 0.5, "accumulation": parts, "parallelism": kind}
        slots = 2 if kind == "ddp" else 1
        details = {SLOTS: slots}
        return Trial(number, params, TrialState.COMPLETED, {SPEED: speed}, details=details)

    found = [probe(0, "single", 4, 10.0), probe(1, "ddp", 4, 12.0), probe(2, "ddp", 1, 14.0)]
    probes = SpeedProbes.__new__(SpeedProbes)
    probes._names = ["accumulation", "parallelism"]
    state: Any = SimpleNamespace(probes=found)
    probes._journal = SimpleNamespace(state=state, spec=spec, trials=[])  # type: ignore[assignment]
    slots = SimpleNamespace(slots=lambda params: 2 if params["parallelism"] == "ddp" else 1)
    probes._assigner = slots  # type: ignore[assignment]
    given = {"rate": 0.7, "accumulation": 4, "parallelism": "ddp"}
    parts = 1 if strategy == "ddp" else 4
    assert probes.fastest(given, lambda params: True) == {
        "rate": 0.7,
        "accumulation": parts,
        "parallelism": strategy,
    }
    alone = {"rate": 0.7, "accumulation": 1, "parallelism": "single"}
    kept = alone if strategy == "ddp" else {**alone, "accumulation": 4}
    assert probes.fastest(alone, lambda params: True) == kept, "one probe compares nothing"


@pytest.mark.parametrize(
    ("budget", "goals", "given"),
    [
        (Budget(trials=4), "minimize loss", "auto"),
        (Budget(time=600.0, trials=4), "minimize loss", "none"),
        (Budget(time=600.0, trials=4), "minimize peak_memory_bytes", "auto"),
    ],
)
def test_there_are_none_without_time_with_memory_or_if_they_are_off(
    budget: Budget, goals: str, given: str, tmp_path: Path
) -> None:
    found = automl.sweep(
        pausing if "loss" in goals else (lambda trial: pausing(trial) and None),
        Space(RATE, PAUSE),
        goals,
        budget=budget,
        probes=given,
        suggester="random",
        dispatcher="inline",
        store=tmp_path,
        name="s",
        progress=False,
    )
    assert len(found.trials) == 4
    assert Ledger.open(tmp_path).state("s").probes == []


def test_a_probe_ends_if_probes_would_take_too_much(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    # Two probes of 0.06 s are allowed, and a pause of a minute is not.
    spec = make_spec(space=Space(RATE, PAUSE), budget=Budget(time=60.0), workers=1)
    ledger.create_sweep(spec)
    ended = run_until(
        ledger, spec, pausing, lambda now: len(now.probes) == 2 and bool(now.probes[1].ended)
    )
    assert [probe.failure for probe in ended.probes] == [None, "timeout"]
    assert ended.probes[1].message == "probes may take no more worker time"
    assert not any(trial.failure for trial in ended.trials)


def test_a_probe_that_was_lost_with_its_controller_counts_its_time_and_runs_again(
    tmp_path: Path,
) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(space=Space(RATE, PARTS), budget=Budget(time=6000.0), workers=1)
    ledger.create_sweep(spec)
    with writing(ledger, "test") as writer:
        trial = writer.begin(writer.propose(spec.space.default() or {}, "default"))
        writer.end(trial, Outcome(0, 1, Ending.COMPLETED, {"loss": 1.0}, seconds=0.5))
        writer.begin_probe(trial.params, 1)
    assert ledger.state("test").use.busy_slots == 1
    ended = run_until(ledger, spec, loop, lambda now: len(now.probes) > 1)
    assert ended.probes[0].failure == LOST
    assert ended.probes[0].params == ended.probes[1].params == trial.params
    assert ledger.state("test").use.busy_slots == 0
    assert ended.trials[0].seconds == 0.5
