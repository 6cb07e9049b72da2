"""Several trials in one gang, since starting a process takes longer than training the toy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from toy import objective

from workers.context import Context
from workers.protocol import Assignment, Outcome, Report
from workers.ranks import disconnect
from workers.run import Objective, run
from workers.runtime.processes import run_gang

Trial = Mapping[str, Any]  # parameters, and `folder`, `ranks` and `resume` of the attempt


def run_all(
    folder: Path, trials: Sequence[Trial], ranks: int, train: Objective = objective
) -> list[dict[str, Any]]:
    """For each trial the failure, and by update the training loss and the validation loss."""
    assignment = Assignment(
        "s", 0, 1, {}, None, str(folder), fixed={"trials": list(trials)}, num_ranks=ranks, seed=7
    )
    everything = partial(one_after_the_other, train)
    outcome = run_gang(assignment, lambda report: None, lambda: None, everything)
    assert outcome.failure is None, f"{outcome.message}\n{outcome.details.get('traceback')}"
    return json.loads((folder / "results.json").read_text())


def one_after_the_other(train: Objective, context: Context) -> None:
    results = []
    for index, trial in enumerate(context.assignment.fixed["trials"]):
        outcome, reports = one(train, context, index, dict(trial))
        results.append(
            {
                "failure": outcome.failure,
                "message": outcome.message,
                "traceback": outcome.details.get("traceback"),
                "optimizer_bytes": outcome.details.get("state_bytes", {}).get("optimizer"),
                "train_loss": {
                    str(r.step): r.metrics["train_loss"]
                    for r in reports
                    if "train_loss" in r.metrics
                },
                "loss": {str(r.step): r.metrics["loss"] for r in reports},
            }
        )
    if context.rank == 0:
        (context.folder / "results.json").write_text(json.dumps(results))


def one(
    train: Objective, context: Context, index: int, trial: dict[str, Any]
) -> tuple[Outcome, list[Report]]:
    folder = context.folder / trial.pop("folder", str(index))
    alone = trial.get("parallelism", "single") == "single"
    attempt = replace(
        context.assignment,
        params=trial,
        folder=str(folder),
        resume=trial.pop("resume", False),
        fixed={},
    )
    reports: list[Report] = []
    if alone and context.rank:
        return Outcome(0, 1, "completed"), reports
    inner = Context(
        attempt,
        send=reports.append,
        rank=0 if alone else context.rank,
        world_size=1 if alone else context.world_size,
        rendezvous=f"file://{context.folder}/meeting-{index}",
    )
    try:
        return run(inner, train), reports
    finally:
        disconnect()  # the process of an attempt would end here
