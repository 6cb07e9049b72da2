"""What an attempt costs before it trains: seconds from its dispatch to its first update."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automl.core import Resources
from automl.dispatch.local import LocalDispatcher
from benchmarks.common.bounds import Claim
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, base, corpus
from workers.context import Context
from workers.protocol import Assignment, Event, Outcome, Report

ATTEMPTS = 3


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    """The first attempt of a slot, and those that follow."""
    found = [Case("eager", {}, "eager", 100.0, quick=True)]
    if target.cuda:
        found.append(Case("compiled", {"compile": "default"}, "compiled", 200.0))
    return found


def measure(target: Target, case: Case) -> Row:
    """Seconds of each attempt until the report of its first update, and until its outcome."""
    params: dict[str, Any] = {
        **base(target),
        "precision": "bf16",
        "batch_tokens": target.size(4096, 256),
        "max_updates": 2,
        "evaluate_updates": 1,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
        **case.settings,
    }
    dispatcher = LocalDispatcher("gpu", 1, Resources(gpus=target.gpus), objective=objective)
    first, whole = [], []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for trial in range(ATTEMPTS):
                path = str(Path(folder) / str(trial))
                one = Assignment(
                    "gpu", trial, 1, params, None, path, corpus(target), gpus=target.gpus
                )
                while dispatcher.free_slots < 1:
                    dispatcher.poll(lambda event: None, 0.1)
                begun = time.perf_counter()
                dispatcher.submit(one)
                report, outcome = _until_outcome(dispatcher)
                first.append(report - begun)
                whole.append(outcome - begun)
    finally:
        dispatcher.close()
    return {"first_update_seconds": first, "outcome_seconds": whole}


def _until_outcome(dispatcher: LocalDispatcher) -> tuple[float, float]:
    reported: list[float] = []
    outcomes: list[Outcome] = []

    def keep(event: Event) -> None:
        if isinstance(event, Report) and not reported:
            reported.append(time.perf_counter())
        if isinstance(event, Outcome):
            outcomes.append(event)

    while not outcomes:
        dispatcher.poll(keep, 0.02)
    if outcomes[0].failure or not reported:
        raise RuntimeError(f"{outcomes[0].failure}: {outcomes[0].message}")
    return reported[0], time.perf_counter()


def objective(trial: Context) -> Any:
    """Translation, as a workload trains it."""
    from workers.training.trainer import train

    workload = Untested(dict(trial.params), trial.assignment.data, {}, seed=trial.seed)
    return train(workload, trial)


def claims(rows: Rows) -> list[Claim]:
    """It is told, not judged: it depends on the disk."""
    return []


def line(row: Row) -> str:
    first = ", ".join(f"{seconds:.1f}" for seconds in row["first_update_seconds"])
    whole = ", ".join(f"{seconds:.1f}" for seconds in row["outcome_seconds"])
    return f"seconds to the first update of attempts in turn: {first}; to the outcome: {whole}"


STAGE = Stage("seconds before an attempt trains", cases, measure, claims, line)
