"""Drives a dispatcher of four slots without a controller; what a trial does is a parameter."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from objectives import patient

import automl
from automl.dispatch.base import Dispatcher
from workers.context import Context
from workers.protocol import Assignment, Event, Limits, Outcome, Report


def behave(trial: Context) -> dict[str, float]:
    """What a trial does is one of its parameters."""
    kinds: dict[str, Callable[[Context], dict[str, float]]] = {
        "count": count,
        "meet": meet,
        "patient": patient,
        "hang": hang,
        "kill": kill,
        "segfault": segfault,
        "exit": leave,
        "raise": fail,
        "print": write,
        "print_late": write_late,
        "child": start_child,
        "garble": garble,
    }
    return kinds[str(trial.params["do"])](trial)


def count(trial: Context) -> dict[str, float]:
    """Reports steps 1 to 3."""
    for step in range(1, 4):
        trial.report(step=step, loss=1.0 / step)
    return {"loss": 0.0}


def replayed(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """The same as `count`, `patient` and `fail` on a virtual clock."""
    if params["do"] == "raise":
        raise ValueError("this configuration is wrong")
    for step in itertools.count(1) if params["do"] == "patient" else range(1, 4):
        yield 1.0, {"loss": 1.0 / step}
    return {"loss": 0.0}


def meet(trial: Context) -> dict[str, float]:
    """The ranks add something up with torch.distributed; one of them may die or raise."""
    import torch
    import torch.distributed as dist

    from workers.ranks import connect

    connect(trial.rank, trial.world_size, trial.rendezvous, torch.device("cpu"))
    (Path(trial.folder) / f"rank-{trial.rank}-{trial.assignment.attempt}").write_text(
        str(os.getpid())
    )
    total = torch.tensor(float(trial.rank))
    dist.all_reduce(total)
    if trial.rank == trial.params.get("dies"):
        os.kill(os.getpid(), 9)
    if trial.rank == trial.params.get("raises"):
        raise automl.TrialFailure("out_of_memory", "this rank is full")
    for step in range(int(trial.params.get("steps", 3))):
        if step == 2 and trial.rank == trial.params.get("hangs"):
            time.sleep(1000)
        dist.all_reduce(total)
        trial.report(step=step, loss=1.0)
        time.sleep(0.02)
    return {"loss": float(trial.rank)}


def hang(trial: Context) -> dict[str, float]:
    trial.report(step=0, loss=1.0)
    while True:
        time.sleep(0.05)


def kill(trial: Context) -> dict[str, float]:
    trial.report(step=0, loss=1.0)
    os.kill(os.getpid(), 9)
    return {}


def segfault(trial: Context) -> dict[str, float]:
    ctypes.string_at(0)
    return {}


def leave(trial: Context) -> dict[str, float]:
    os._exit(3)


def fail(trial: Context) -> dict[str, float]:
    raise ValueError("this configuration is wrong")


def write(trial: Context) -> dict[str, float]:
    """Prints so many megabytes, through Python and past it."""
    print("the first line")
    line = "x" * 99
    for _ in range(int(trial.params["megabytes"]) * 10_000):
        print(line)
    sys.stdout.flush()
    subprocess.run(["echo", "a line of another process"], check=True)
    ctypes.CDLL(None).printf(b"the last line, of a C library\n")
    return {"loss": 1.0}


def write_late(trial: Context) -> dict[str, float]:
    print("half a line", end="")
    return {"loss": 1.0}


def start_child(trial: Context) -> dict[str, float]:
    """Leaves a process behind, and dies or is killed."""
    child = subprocess.Popen(["sleep", "1000"])
    (Path(trial.folder) / "child").write_text(str(child.pid))
    return kill(trial) if trial.params.get("dies") else hang(trial)


def garble(trial: Context) -> dict[str, float]:
    """Writes to the connection of its worker what is no message."""
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, struct.pack("!i", 9) + b"no pickle")
    return hang(trial)


class Driver:
    """A dispatcher of four slots, and what came of one test's attempts."""

    def __init__(self, dispatcher: Dispatcher, folder: Path, first: int) -> None:
        self.dispatcher, self.folder, self.next = dispatcher, folder, first
        self.events: list[Event] = []

    def submit(self, do: str, ranks: int = 1, timeout: float | None = None, **params: Any) -> int:
        number, self.next = self.next, self.next + 1
        self.begin(number, 1, do, ranks, timeout, **params)
        return number

    def begin(
        self,
        number: int,
        attempt: int,
        do: str,
        ranks: int = 1,
        timeout: float | None = None,
        **params: Any,
    ) -> None:
        folder = str(self.folder / str(number))
        limits = Limits(timeout_seconds=timeout)
        self.dispatcher.submit(
            Assignment(
                "driver",
                number,
                attempt,
                {"do": do, "lr": 0.1, **params},
                None,
                folder,
                num_ranks=ranks,
                limits=limits,
                store=str(self.folder),
            )
        )

    def until(self, condition: Callable[[], bool], seconds: float = 100.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.events
            self.dispatcher.poll(self.events.append, 0.1)

    def rest(self) -> None:
        """Until every slot is free: workers that died are replaced first."""
        self.until(lambda: self.dispatcher.free_slots == self.dispatcher.num_slots)

    def finish(self, number: int) -> Outcome:
        self.until(lambda: number in self.outcomes())
        return self.outcomes()[number]

    def outcomes(self) -> dict[int, Outcome]:
        found = [event for event in self.events if isinstance(event, Outcome)]
        assert len({outcome.trial for outcome in found}) == len(found), "an attempt has one outcome"
        return {outcome.trial: outcome for outcome in found}

    def reports(self, number: int) -> list[int]:
        return [
            event.step
            for event in self.events
            if isinstance(event, Report) and event.trial == number
        ]

    def pids(self, number: int, ranks: int) -> set[int]:
        return {
            int((self.folder / str(number) / f"rank-{rank}-1").read_text()) for rank in range(ranks)
        }

    def log(self, number: int, rank: int = 0) -> str:
        return (self.folder / str(number) / "logs" / f"attempt-1-rank-{rank}.log").read_text()
