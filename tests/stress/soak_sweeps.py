"""The sweeps of the soak: a controller in its own process, which dies at a failpoint."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automl.core.goals import parse_goals
from automl.core.resources import Budget
from automl.core.spec import SweepSpec
from automl.core.trial import Trial
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
    "automl.report.page",
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


def launch(folder: Path, name: str, point: str = "", skip: int = 0) -> Any:
    """Start a controller that dies when it passes a point for the time after `skip` others."""
    _CONTEXT.set_forkserver_preload(PRELOAD)
    return _start(_control, str(folder), name, point, skip)


def launch_ray(folder: Path, name: str, address: str | None) -> Any:
    """Start a controller with Ray workers; without an address it starts its own Ray."""
    return _start(_control_ray, str(folder), name, address, dict(os.environ))


def _start(target: Callable[..., None], *arguments: Any) -> Any:
    # A daemonic process could not start the processes of Ray.
    process = _CONTEXT.Process(target=target, args=arguments, daemon=False)
    process.start()
    return process


def _control(store: str, name: str, point: str, skip: int) -> None:
    gc.freeze()  # each trial collects garbage before it measures memory
    if point:
        from faults import arm

        arm(point, skip)
    _run(store, name, exporting=point == "exporting", dispatcher="inline")


def _control_ray(store: str, name: str, address: str | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # the fork server has the environment of its own start
    _run(store, name, exporting=False, ray_address=address)


def _run(store: str, name: str, *, exporting: bool, **options: Any) -> None:
    """Run a sweep to its end and leave this process; the status is 0 if the sweep is finished."""
    from automl import sweeps

    ledger = Ledger.open(store)
    show = acknowledge(Path(store) / f"{name}.acknowledged")
    snapshot = sweeps.run(
        ledger.spec(name),
        ledger=ledger,
        objective=objective,
        on_change=show,
        resume=True,
        **options,
    )
    ledger.close()
    if exporting:
        _export(snapshot, Path(store) / f"{name}.html")
    os._exit(0 if snapshot.state == "finished" else 1)


def _export(snapshot: Any, path: Path) -> None:
    """Write the sweep's report, and die between the writing and the renaming."""
    from automl.report.page import save

    def die(self: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGKILL)
        return target

    Path.replace = die  # type: ignore[method-assign,assignment]
    save(snapshot, path)
