"""The sweeps of the soak: a controller in its own process, which dies at a failpoint."""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automl.core import Budget, SweepSpec, Trial, parse_goals
from automl.ledger import Ledger
from search_spaces import Choice, Float, Space
from workers.context import Context

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("optimizer", ["sgd", "adam"], default="adam"),
)
STEPS = 4
PRELOAD = [
    "torch",
    "workers.run",
    "workers.device.peak_memory",
    "automl.sweeps",
    "automl.suggesters.sobol",
    "faults",
]
_CONTEXT = multiprocessing.get_context("forkserver")


def make_spec(name: str, trials: int, workers: int = 1) -> SweepSpec:
    """A sweep of Sobol points that retries lost trials."""
    return SweepSpec(
        name,
        SPACE,
        parse_goals("minimize loss"),
        budget=Budget(trials=trials),
        suggester="sobol",
        workers=workers,
        max_retries=1000,
    )


def objective(trial: Context) -> dict[str, float]:
    """Write a mark for each attempt that starts, and report four times."""
    marks = Path(trial.folder).parents[1] / "marks"
    with marks.open("a") as file:
        file.write(f"{trial.number} {trial.assignment.attempt} {os.getpid()}\n")
    pause = float(os.environ.get("SOAK_PAUSE", "0.005"))
    for step in range(STEPS):
        time.sleep(pause)
        trial.report(step=step, loss=trial.params["lr"] + 1.0 / (step + 1))
    return {"loss": trial.params["lr"] + 1.0 / STEPS}


def acknowledge(file: Path) -> Callable[[Any], None]:
    """Append to a file everything that the controller shows, because somebody may have seen it."""
    shown: dict[int, str] = {}

    def show(snapshot: Any) -> None:
        for trial in snapshot.trials:
            fact = json.dumps([trial.number, *facts(trial)])
            if shown.get(trial.number) != fact:
                shown[trial.number] = fact
                with file.open("a") as log:
                    log.write(fact + "\n")

    return show


def facts(trial: Trial) -> list[Any]:
    """Parameters, attempts and reports of a trial, and all of it once it has ended."""
    reports = [[p.attempt, p.sequence, p.step, dict(p.metrics)] for p in trial.reports]
    final = repr(vars(trial)) if trial.state.finished else ""
    return [dict(trial.params), trial.attempts, reports, final]


def launch(folder: Path, name: str, point: str = "", skip: int = 0, **options: Any) -> Any:
    """Start a controller that dies when it passes a point for the time after `skip` others.

    Args:
        options: of `automl.sweeps.run`; trials run in the controller if there are none.
    """
    _CONTEXT.set_forkserver_preload(PRELOAD)
    given = (str(folder), name, point, skip, options or {"dispatcher": "inline"}, dict(os.environ))
    # A daemonic process could not start the processes of Ray.
    process = _CONTEXT.Process(target=_control, args=given, daemon=False)
    process.start()
    return process


def _control(
    store: str, name: str, point: str, skip: int, options: Any, environment: dict[str, str]
) -> None:
    """Run a sweep to its end and leave this process; the status is 0 if the sweep is finished."""
    from automl import sweeps

    os.environ.update(environment)  # the fork server has the environment of its own start
    gc.freeze()  # each trial collects garbage before it measures memory
    if point:
        from faults import arm

        arm(point, skip)
    ledger = Ledger.open(store)
    options |= {"on_change": acknowledge(Path(store) / f"{name}.acknowledged"), "resume": True}
    snapshot = sweeps.run(ledger.spec(name), ledger=ledger, objective=objective, **options)
    ledger.close()
    os._exit(0 if snapshot.state == "finished" else 1)
