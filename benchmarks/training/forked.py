"""Gangs of processes that are forked from this one, which has imported everything and prepared the data already.

Starting a process costs more than a few updates of a small model. What a rank measures of itself, such as its peak
memory, is measured above what it began with.
"""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workers.context import Context
from workers.protocol import Assignment, Outcome, lost
from workers.run import Objective, combine, run

_FORK = multiprocessing.get_context("fork")


def warm() -> None:
    """Import what ranks will, on one thread, so that nothing is started that a fork does not survive."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.rpc
    import torch.distributed.tensor.parallel

    torch.set_num_threads(1)


def run_gang(assignment: Assignment, objective: Objective) -> Outcome:
    """The outcome of an assignment whose ranks are forked from this process and all run to their end."""
    meeting = (
        f"file://{assignment.folder}/.meeting-{uuid.uuid4().hex}"
        if assignment.num_ranks > 1
        else ""
    )
    started = [
        _start(_rank, assignment, rank, meeting, objective) for rank in range(assignment.num_ranks)
    ]
    outcomes = []
    for process, pipe in started:
        try:
            outcomes.append(pipe.recv())
        except EOFError:
            outcomes.append(lost(assignment, "a rank died"))
        process.join()
    return combine(outcomes)


def elsewhere(function: Callable[[], Any]) -> Any:
    """What a function returns in a process of its own."""
    process, pipe = _start(_call, function)
    try:
        return pipe.recv()
    finally:
        process.join()


def _start(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    return process, ours


def _call(pipe: Connection, function: Callable[[], Any]) -> None:
    pipe.send(function())


def _rank(
    pipe: Connection, assignment: Assignment, rank: int, meeting: str, objective: Objective
) -> None:
    Path(assignment.folder).mkdir(parents=True, exist_ok=True)
    context = Context(assignment, rank=rank, world_size=assignment.num_ranks, rendezvous=meeting)
    pipe.send(run(context, objective))
