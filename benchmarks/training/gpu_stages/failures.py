"""A trial that fails on the GPU must not harm the next one on the same slot.

Trials run on the local dispatcher. In the rehearsal on a CPU, errors are raised in the words of
CUDA, since a CPU's context cannot be lost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automl.core import Resources
from automl.dispatch.local import LocalDispatcher
from benchmarks.common.bounds import Claim, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from workers.context import Context
from workers.protocol import Assignment, Event, Outcome

BYTES = 1 << 28  # that a good trial takes
IDLE_BYTES = 1e9  # of a worker that waits: a CUDA context takes about half of it
SECONDS = 150.0


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    return [
        Case("poisoned context", {"fails": "assert"}, "assert", SECONDS, quick=True),
        Case("out of memory", {"fails": "memory"}, "memory", SECONDS, quick=True),
    ]


def measure(target: Target, case: Case) -> Row:
    """A good trial, one that fails, and two good ones, on one slot."""
    plan = ("good", case.settings["fails"], "good", "good")
    with tempfile.TemporaryDirectory() as folder:
        outcomes, idle = _run(target, plan, Path(folder))
    return {
        "failures": [outcome.failure for outcome in outcomes],
        "messages": [outcome.message[:200] for outcome in outcomes],
        "peaks": [outcome.peak_memory_bytes for outcome in outcomes],
        "values": [outcome.metrics.get("value") for outcome in outcomes],
        "idle_bytes": idle,
    }


def _run(target: Target, plan: tuple[str, ...], folder: Path) -> tuple[list[Outcome], int | None]:
    free = _free_bytes(target)
    dispatcher = LocalDispatcher("gpu", 1, Resources(gpus=target.gpus), objective=objective)
    outcomes = []
    try:
        for trial, what in enumerate(plan):
            params = {"what": what, "bytes": target.size(BYTES, 1 << 20)}
            attempt = Assignment(
                "gpu", trial, 1, params, None, str(folder / str(trial)), gpus=target.gpus
            )
            while dispatcher.free_slots < 1:  # a worker in place of a spent one starts
                dispatcher.poll(lambda event: None, 0.1)
            dispatcher.submit(attempt)
            outcomes.append(_outcome(dispatcher))
        time.sleep(0.5)
        now = _free_bytes(target)
        return outcomes, None if free is None or now is None else free - now
    finally:
        dispatcher.close()


def _outcome(dispatcher: LocalDispatcher) -> Outcome:
    found: list[Outcome] = []

    def keep(event: Event) -> None:
        if isinstance(event, Outcome):
            found.append(event)

    while not found:
        dispatcher.poll(keep, 0.1)
    return found[0]


def objective(trial: Context) -> dict[str, float]:
    """Compute something good, trigger an assertion on the device, or take all of its memory."""
    import torch

    device = torch.device(trial.device)
    what: Any = trial.params["what"]
    count = int(trial.params["bytes"]) // 4  # type: ignore[arg-type]
    values = torch.ones(count, device=device)
    if what == "assert":
        if device.type == "cpu":
            raise RuntimeError("CUDA error: device-side assert triggered")
        values[torch.full((1,), count, device=device)] += 1
        torch.cuda.synchronize()
    if what == "memory":
        if device.type == "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        total = torch.cuda.get_device_properties(device).total_memory
        kept = [torch.empty(total // 8, dtype=torch.uint8, device=device) for _ in range(9)]
        return {"value": float(len(kept))}
    return {"value": float(values.mean())}


def _free_bytes(target: Target) -> int | None:
    if not target.cuda:
        return None
    import torch

    return int(torch.cuda.mem_get_info(target.device)[0])


def claims(rows: Rows) -> list[Claim]:
    """Each failure has its kind, and the trials around it are as good as the first."""
    poisoned = rows.get("poisoned context")
    full = rows.get("out of memory")
    return [
        _expected("trials around a device assert", poisoned, [None, "crashed", None, None]),
        _expected("trials around an exhausted GPU", full, [None, "out_of_memory", None, None]),
        _same_peaks("peak of the trial after an exhausted GPU, divided by the first's", full),
        at_most(
            "bytes that an idle worker holds",
            full["idle_bytes"] if full else None,
            IDLE_BYTES,
        ),
    ]


def _expected(name: str, row: Row | None, failures: list[str | None]) -> Claim:
    if row is None:
        return Claim(name, None, "not measured")
    good = all(
        value == 1.0 for value, kind in zip(row["values"], failures, strict=True) if not kind
    )
    return Claim(name, row["failures"] == failures and good, ", ".join(map(str, row["failures"])))


def _same_peaks(name: str, row: Row | None) -> Claim:
    peaks = row["peaks"] if row else []
    ratio = peaks[2] / peaks[0] if len(peaks) > 2 and peaks[0] and peaks[2] else None
    return at_most(name, ratio, 1.2)


def line(row: Row) -> str:
    idle = row["idle_bytes"]
    held = "" if idle is None else f", an idle worker holds {idle / 1e6:.0f} MB"
    return ", ".join(str(failure or "good") for failure in row["failures"]) + held


STAGE = Stage("a poisoned context and an exhausted GPU", cases, measure, claims, line)
