"""Sweeps for the tests of the report, written to a ledger."""

from pathlib import Path
from typing import Any

import numpy as np

from automl.core import (
    Begun,
    Budget,
    Closed,
    Ended,
    Moved,
    Noted,
    Proposed,
    SweepEvent,
    SweepSpec,
    TrialState,
    parse_constraints,
    parse_goals,
)
from automl.ledger import Ledger
from search_spaces import Choice, Float, Int, Space
from workers.protocol import Ending, Outcome, Params, Report
from workers.training import TRAINING_METRICS

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3, affects={"quality"}),
    Int("batch_size", 8, 512, log=True, default=64),
    Choice("optimizer", ["sgd", "adam"], default="adam", affects={"quality"}),
    Float("momentum", 0.0, 0.99, default=0.9, when={"optimizer": "sgd"}, affects={"quality"}),
    Choice("layout", ["<b>packed", "separate"], default="separate", affects={"speed", "memory"}),
)


def loss_of(params: Params) -> float:
    return abs(np.log10(params["lr"]) + 2.5) + 0.1 * (params["optimizer"] == "sgd") + 0.02  # type: ignore[arg-type]


def trial_events(
    number: int, params: Params, begin: float, rng: np.random.Generator
) -> list[SweepEvent]:
    """Runs out of memory with a large batch; some trials pause once, some stop."""
    at, attempt = begin, 1
    source = "default" if number == 0 else "bayes"
    events: list[SweepEvent] = [Proposed(number, params, source, at), Begun(number, 1, at)]
    if params["batch_size"] > 300:  # type: ignore[operator]
        outcome = Outcome(
            number, 1, Ending.FAILED, failure="out_of_memory", message="asked for 9 GB", seconds=1.0
        )
        return [
            *events,
            Ended(outcome, TrialState.FAILED, "out_of_memory", "asked for 9 GB", at + 1),
        ]
    final = loss_of(params) + 0.02 * rng.standard_normal()
    speed = {
        "seconds_per_update": 1e-3 * float(params["batch_size"]) ** 0.8 * (1 + 0.01 * rng.random())
    }
    peak = 2**20 * int(params["batch_size"])  # type: ignore[arg-type]
    for i in range(6):
        if i == 3 and number % 5 == 1:
            paused = Outcome(number, 1, Ending.PAUSED, {}, seconds=3.0, peak_memory_bytes=peak)
            events += [
                Ended(paused, TrialState.PAUSED, at=at),
                Moved(number, TrialState.WAITING, "promoted", at + 5),
            ]
            at, attempt = at + 5, 2
            events.append(Begun(number, attempt, at))
        at += 1
        metrics = {"loss": final + 1.0 / (i + 1), "size": 10 * float(params["batch_size"]), **speed}
        events.append(Report(number, attempt, i, (i + 1) * 10, metrics, float(i + 1)))
    stopped = number % 7 == 3
    outcome = Outcome(
        number, attempt, Ending.STOPPED if stopped else Ending.COMPLETED, {"loss": final},
        seconds=4.0, peak_memory_bytes=peak,
        details={"memory_by_module_bytes": {"head": peak}}, estimated_memory_bytes=int(1.1 * peak),
    )  # fmt: skip
    return [*events, Ended(outcome, TrialState.STOPPED if stopped else TrialState.COMPLETED, at=at)]


def write_sweep(
    store: Path, num_trials: int = 24, goals: Any = "minimize loss", **fields: Any
) -> str:
    """A store with a finished sweep on two slots, named "toy", or "toy-2" if there is one."""
    constraints = parse_constraints(fields.pop("constraints", ()))
    budget = Budget(trials=max(num_trials, 1))
    fields.setdefault("metrics", TRAINING_METRICS)
    spec = SweepSpec("toy", SPACE, parse_goals(goals), constraints, budget=budget, **fields)
    ledger = Ledger.open(store, create=True)
    name = ledger.create_sweep(
        spec, {"git_commit": "abc123", "packages": {"torch": "2.13"}, "hardware": {"num_cpus": 2}}
    )
    recorder = ledger.hold(name)
    rng = np.random.default_rng(0)
    params = [SPACE.default(), *SPACE.sample(rng, max(num_trials - 1, 1))][:num_trials]
    for number, one in enumerate(params):
        assert one is not None
        for event in trial_events(number, one, 4.0 * number, rng):
            recorder.state.apply(event)
    recorder.state.apply(
        Noted("fallback", "the suggester 'bayes' failed, random proposes instead", at=3.0)
    )
    recorder.state.apply(Closed("finished"))
    recorder.commit(4.0 * num_trials + 10)
    ledger.close()
    return str(store)
