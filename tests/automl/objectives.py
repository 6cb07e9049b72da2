"""Objectives and spaces that several tests run, here so that new processes can import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from automl import sweeps
from automl.core import (
    Budget,
    Command,
    Snapshot,
    SweepEvent,
    SweepSpec,
    parse_constraints,
    parse_goals,
)
from automl.ledger import Ledger
from search_spaces import Choice, Float, Space
from workers.context import Context

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("optimizer", ["sgd", "adam"], default="adam"),
)


def make_spec(name: str = "test", goals: Any = "minimize loss", **fields: Any) -> SweepSpec:
    budget = fields.pop("budget", Budget(trials=fields.pop("trials", 5)))
    constraints = parse_constraints(fields.pop("constraints", ()))
    defaults: dict[str, Any] = {"suggester": "random", "workers": 1, "space": SPACE}
    return SweepSpec(
        name,
        goals=parse_goals(goals),
        constraints=constraints,
        budget=budget,
        **{**defaults, **fields},
    )


def record(ledger: Ledger, sweep: str, *events: SweepEvent) -> None:
    """Apply events to a sweep that the ledger holds, and commit them together."""
    recorder = ledger._held[sweep]
    for event in events:
        recorder.state.apply(event)
    recorder.commit()


def run_inline(
    ledger: Ledger, spec: SweepSpec, objective: Any = None, *, resume: bool = False, **options: Any
) -> Snapshot:
    """Run a sweep in this process; creates it in the ledger unless it is resumed."""
    if not resume:
        ledger.create_sweep(spec)
    options |= {"objective": objective or quick, "dispatcher": "inline", "resume": resume}
    return sweeps.run(spec, ledger=ledger, **options)


def states(snapshot: Snapshot) -> list[str]:
    """The state of each trial, by number."""
    return [str(trial.state) for trial in snapshot.trials]


def loss_of(params: Any, step: int) -> float:
    return float(params["lr"]) + 1.0 / (step + 1)


def quick(trial: Context) -> dict[str, float]:
    for step in range(3):
        if not trial.report(step=step, loss=loss_of(trial.params, step)):
            break
    return {"loss": loss_of(trial.params, step)}


def marked(trial: Context) -> dict[str, float]:
    """Leaves a line for each attempt that begins and ends, and takes a fifth of a second."""
    marks = Path(trial.folder).parents[1] / "marks"
    with marks.open("a") as file:
        file.write(f"begin {trial.number} {trial.assignment.attempt}\n")
    for step in range(4):
        time.sleep(0.05)
        if not trial.report(step=step, loss=loss_of(trial.params, step)):
            break
    with marks.open("a") as file:
        file.write(f"end {trial.number} {trial.assignment.attempt}\n")
    return {"loss": loss_of(trial.params, step)}


def patient(trial: Context) -> dict[str, float]:
    """Goes on until it is told to end."""
    step = 0
    while trial.report(step=step, loss=loss_of(trial.params, step)):
        time.sleep(0.02)
        step += 1
    return {"loss": loss_of(trial.params, step)}


def dying(trial: Context) -> dict[str, float]:
    """Trial 1 dies in its first attempt, trial 2 in every one."""
    trial.report(step=0, loss=1.0)
    if trial.number == 2 or (trial.number == 1 and trial.assignment.attempt == 1):
        time.sleep(0.05)
        os.kill(os.getpid(), 9)
    return {"loss": loss_of(trial.params, 0)}


def poisoned(trial: Context) -> dict[str, float]:
    """Trial 0 takes its process with it."""
    if trial.number == 0:
        signal.raise_signal(signal.SIGSEGV)
    return {"loss": loss_of(trial.params, 0)}


def commands_of(ledger: Ledger, sweep: str) -> list[Command]:
    """What was sent to a sweep, in order."""
    return [event for event in ledger.events(sweep) if isinstance(event, Command)]
