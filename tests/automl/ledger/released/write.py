"""Writes a ledger of the newest schema, with events of every kind.

    python tests/automl/ledger/released/write.py NAME     # from the repository's root

Run it if the schema gets a new version, or if specs or events get new fields. Never change a file
afterwards: `test_migrations.py` reads all of them. `v2-commands` was written by commit
a0f34ae. Commit 0bd2126 wrote `v3-middle`, a sweep that agents serve, and `v3-killed`, whose
controller was killed in the middle of a trial.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from automl.core.budget import Budget
from automl.core.events import (
    Answered,
    Begun,
    Command,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SweepEvent,
)
from automl.core.goals import Constraint, Goal
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger, Recorder
from automl.ledger.database import FILE_NAME
from automl.ledger.records import dumps
from search_spaces import Choice, Float, Int, Space
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

HERE = Path(__file__).parent
SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3, affects={"quality"}),
    Int("batch_size", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
    constraints=["batch_size * lr <= 40"],
)


def spec(name: str) -> SweepSpec:
    goals = (Goal.parse("maximize bleu within 10m"), Goal.parse("minimize loss"))
    constraints = (Constraint.parse("peak_memory_bytes <= 8e9"),)
    budget, beliefs = Budget(trials=12, time=600.0), {"lr": {"at": 1e-3, "spread": 0.2}}
    return SweepSpec(name, SPACE, goals, constraints, budget=budget, seed=7, beliefs=beliefs)


def record(recorder: Recorder, *events: SweepEvent) -> None:
    for event in events:
        recorder.apply(event)
    recorder.commit()


def write(folder: Path) -> None:
    """An interrupted sweep with a trial in every state, and an empty sweep."""
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(spec("nmt"), {"git_commit": "abc", "packages": {"torch": "2"}})
    ledger.create_sweep(spec("empty"), {})
    recorder = ledger.acquire("nmt")
    params = {"lr": 1 / 3 * 1e-3, "batch_size": 64, "optimizer": "sgd", "momentum": 0.9}
    ends = (
        (Ending.COMPLETED, TrialState.COMPLETED, None),
        (Ending.STOPPED, TrialState.STOPPED, None),
        (Ending.PAUSED, TrialState.PAUSED, None),
        (Ending.FAILED, TrialState.FAILED, "out_of_memory"),
    )
    for number, (ending, state, failure) in enumerate(ends):
        outcome = Outcome(
            number,
            1,
            ending,
            {"chrf": 1 / 3},
            failure,
            "a message: ü\n",
            2.5,
            2**40,
            {"traceback": "...", "n": [1]},
            held=ending is Ending.PAUSED,
            exception="ValueError" if failure else "",
            estimated_memory_bytes=2**39,
        )
        record(
            recorder,
            Proposed(number, params, "bayes" if number else "default", 1.0),
            Begun(number, 1, 1.5),
            Started(number, 1, "host:7"),
            Report(number, 1, 0, 10, {"loss": math.nan, "bleu": 0.1 + 0.2}, 0.5),
            Report(number, 1, 1, 20, {"loss": -math.inf, "bleu": 2.5}, 1.0),
            Ended(outcome, state, failure, "", 3.5),
        )
    record(recorder, Proposed(4, params, "sobol", 4.0), Begun(4, 1, 4.5))
    record(recorder, Moved(4, TrialState.INTERRUPTED, "its controller was lost", 5.0, 0.5))
    record(
        recorder,
        Noted("fallback", "the suggester failed", None, 5.5),
        Proposed(5, params, "bayes", 6.0),
    )
    enqueued = Command("enqueue", {**params, "batch_size": 128}, at=6.0)
    limits = Command("limits", {"batch_size": {"low": 16, "high": 64}}, at=6.0)
    (_, number) = ledger.send("nmt", limits, enqueued)
    record(recorder, Proposed(6, enqueued.content, "enqueued", 6.2, command=number))
    ledger.send("nmt", Command("enqueue", {**params, "batch_size": 256}, at=6.3))
    record(recorder, Proposed(7, params, "bayes", 6.3), Begun(7, 1, 6.3, 2))
    record(recorder, Leased(7, 1, "ann", 60.0, 1e9, StopRequest.PAUSE, "asked", 6.3, held=True))
    (asked,) = ledger.send("nmt", Command("ask", {"n": 1}, at=6.4, by="ann"))
    record(recorder, Answered(asked, {"trial": 7}, at=6.4))
    ledger.send("nmt", Command("mark", {"star": True, "add_tags": ["good"]}, 1, by="ann"))
    recorder.commit(6.5, status={"num_slots": 2})
    ledger.close()


def plain(trial: Trial) -> dict[str, Any]:
    """A trial as JSON."""
    found = {
        **vars(trial),
        "metrics": dumps(trial.metrics),
        "lease": trial.lease and vars(trial.lease),
        "reports": [[p.step, dumps(p.metrics), *p[2:]] for p in trial.reports],
    }
    plain_data: dict[str, Any] = json.loads(dumps(found))
    return plain_data


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        read = Ledger.open(name, readonly=True)
        expected = {
            info.name: [plain(trial) for trial in read.trials(info.name)] for info in read.sweeps()
        }
        with closing(sqlite3.connect(Path(name) / FILE_NAME)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(Path(name) / FILE_NAME, HERE / f"{sys.argv[1]}.sqlite3")
    (HERE / f"{sys.argv[1]}.json").write_text(json.dumps(expected, indent=1) + "\n")
