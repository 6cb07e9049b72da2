"""Controllers in their own processes, which tests kill; forked from a server with torch."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from objectives import make_spec, patient

from automl import sweeps
from automl.core import Budget, TrialState
from automl.core.spec import SweepSpec
from automl.ledger import Ledger

_CONTEXT = multiprocessing.get_context("forkserver")


def begin(
    store: Path, spec: SweepSpec, objective: Callable[[Any], Any], **options: Any
) -> BaseProcess:
    """A controller that resumes the sweep; its exit status is 0, or 130 if it is interrupted."""
    return start(_control, str(store), spec.to_dict(), objective, options)


def start(target: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """A process that has imported already what a controller needs."""
    _CONTEXT.set_forkserver_preload(
        [
            "torch",
            "workers.run",
            "workers.device.peak_memory",
            "automl.sweeps",
            "automl.suggesters.random",
        ]
    )
    process = _CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def _control(
    store: str, spec: dict[str, Any], objective: Callable[[Any], Any], options: dict[str, Any]
) -> None:
    ledger = Ledger.open(store)
    options = {"dispatcher": "inline", **options}
    snapshot = sweeps.run(
        SweepSpec.from_dict(spec), ledger=ledger, objective=objective, resume=True, **options
    )
    os._exit(130 if snapshot.state == "interrupted" else 0)


NO_END = Budget(trials=99)


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.005)


@contextmanager
def running(store: Path, **fields: Any) -> Iterator[tuple[Ledger, BaseProcess]]:
    """A sweep that a process of its own runs, one trial after another that ends when it is told."""
    dispatcher = fields.pop("dispatcher", "inline")
    spec = make_spec(**{"budget": NO_END, **fields})
    with closing(Ledger.open(store, create=True)) as ledger:
        ledger.create_sweep(spec)
        process = begin(store, spec, patient, dispatcher=dispatcher)
        try:
            wait_until(lambda: of(ledger, 0, TrialState.RUNNING))
            yield ledger, process
        finally:
            process.kill()
            process.join()


def of(ledger: Ledger, number: int, state: TrialState) -> bool:
    """Whether there is such a trial, in this state."""
    found = ledger.trials("test")
    return number < len(found) and found[number].state is state
