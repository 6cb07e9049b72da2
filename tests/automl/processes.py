"""Controllers in their own processes, which tests kill; forked from a server with torch."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from automl import sweeps
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
