"""Writes a ledger of the schema of today, with something of everything in it; run it at each new schema version.

    python tests/automl/ledger/released/write.py      # from the repository's root

The files are never changed afterwards: `test_migrations.py` reads every one of them for ever.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from automl.core.budget import Budget
from automl.core.events import Begun, Ended, Moved, Noted, Proposed
from automl.core.goals import Constraint, Goal
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger
from automl.ledger.rows import dumps, trial_row
from automl.ledger.schema import VERSION
from automl.ledger.sql import FILE_NAME
from search_spaces import Choice, Float, Int, Space
from workers.protocol import Ending, Outcome, Report, Started

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
    return SweepSpec(name, SPACE, goals, constraints, budget=Budget(trials=12, time=600.0), seed=7)


def write(folder: Path) -> None:
    """A sweep that was interrupted, with a trial in every state, and an empty one."""
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(spec("nmt"), {"git_commit": "abc", "packages": {"torch": "2"}})
    ledger.create_sweep(spec("empty"), {})
    recorder = ledger.acquire("nmt")
    params = {"lr": 1 / 3 * 1e-3, "batch_size": 64, "optimizer": "sgd", "momentum": 0.9}
    ends = (
        (Ending.COMPLETED, TrialState.COMPLETED, None), (Ending.STOPPED, TrialState.STOPPED, None),
        (Ending.PAUSED, TrialState.PAUSED, None), (Ending.FAILED, TrialState.FAILED, "out_of_memory"),
    )  # fmt: skip
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
        )
        ledger.record(
            "nmt",
            Proposed(number, params, "bayes" if number else "default", 1.0),
            Begun(number, 1, 1.5),
            Started(number, 1, "host:7"),
            Report(number, 1, 0, 10, {"loss": math.nan, "bleu": 0.1 + 0.2}, 0.5),
            Report(number, 1, 1, 20, {"loss": -math.inf, "bleu": 2.5}, 1.0),
            Ended(outcome, state, failure, "", 3.5),
        )
    ledger.record("nmt", Proposed(4, params, "sobol", 4.0), Begun(4, 1, 4.5))
    ledger.record("nmt", Moved(4, TrialState.INTERRUPTED, "its controller was lost", 5.0, 0.5))
    ledger.record(
        "nmt",
        Noted("fallback", "the suggester failed", None, 5.5),
        Proposed(5, params, "bayes", 6.0),
    )
    recorder.commit(6.5, state="interrupted", status={"num_slots": 2})
    ledger.close()


def plain(trial: Trial) -> dict[str, Any]:
    """A trial as JSON."""
    points = [(p.step, dumps(p.metrics), p.seconds, p.attempt, p.sequence) for p in trial.reports]
    return {**trial_row(0, trial), "reports": [list(point) for point in points]}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        read = Ledger.open(name, readonly=True)
        expected = {
            info.name: [plain(trial) for trial in read.trials(info.name)] for info in read.sweeps()
        }
        with closing(sqlite3.connect(Path(name) / FILE_NAME)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(Path(name) / FILE_NAME, HERE / f"v{VERSION}.sqlite3")
    (HERE / f"v{VERSION}.json").write_text(json.dumps(expected, indent=1) + "\n")
