"""Gangs of ranks that are forked from this process, which has the imports and the data already.

To start a process costs more than a few updates of a small model. A rank measures itself, such as
its peak memory, above what it began with.
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
from workers.run import Objective, run
from workers.runtime.processes import combine

_FORK = multiprocessing.get_context("fork")


def warm() -> None:
    """Import the modules of the ranks, with one thread, because threads do not survive a fork."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.rpc
    import torch.distributed.tensor.parallel

    torch.set_num_threads(1)


def run_gang(assignment: Assignment, objective: Objective) -> Outcome:
    """Fork the ranks of an assignment, wait for all of them, and combine their outcomes."""
    ranks = assignment.num_ranks
    rendezvous = f"file://{assignment.folder}/.rendezvous-{uuid.uuid4().hex}" if ranks > 1 else ""
    started = [_start(_rank, assignment, rank, rendezvous, objective) for rank in range(ranks)]
    outcomes = []
    for process, pipe in started:
        try:
            outcomes.append(pipe.recv())
        except EOFError:
            outcomes.append(lost(assignment, "a rank died"))
        process.join()
    return combine(outcomes)


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function in its own process."""
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
    pipe: Connection, assignment: Assignment, rank: int, rendezvous: str, objective: Objective
) -> None:
    Path(assignment.folder).mkdir(parents=True, exist_ok=True)
    context = Context(assignment, rank=rank, world_size=assignment.num_ranks, rendezvous=rendezvous)
    pipe.send(run(context, objective))
