"""The trial of a program: `from automl.client import trial`, started by automl or alone."""

import atexit
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from workers.context import Context
from workers.protocol import Assignment, Report, StopRequest
from workers.ranks.process_group import disconnect

from .prepare import prepare


class ProgramContext(Context):
    """A trial in a process of its own, which automl started as a command, or nobody did."""

    def restore(self) -> Any:
        """See `Context.restore`; None unless an earlier attempt has left its state."""
        return super().restore() if self.resumed else None

    def barrier(self) -> None:
        """See `Context.barrier`; the ranks meet in `prepare`."""
        if self.loop is not None:
            self.loop.barrier()


def program_trial(
    params: Mapping[str, Any],
    send: Callable[[Mapping[str, Any]], None],
    stop_requested: Callable[[], bool],
) -> Context:
    """The trial of this process, from the environment that automl or torchrun has set.

    Alone, there are no parameters, reports go nowhere, and `save` writes to `checkpoints` in the
    working folder; with AUTOML_RESUME=1 `restore` reads it.

    Args:
        params: of the trial.
        send: takes a report as a line of JSON.
        stop_requested: whether the program should end.
    """
    environment = os.environ.get
    resumes = environment("AUTOML_RESUME") == "1"
    checkpoints = environment("AUTOML_CHECKPOINT_DIR")
    assignment = Assignment(
        "program",
        int(environment("AUTOML_TRIAL", "0")),
        2 if resumes else 1,
        params,
        None,
        str(Path(checkpoints).parent if checkpoints else Path.cwd()),
        seed=int(environment("AUTOML_SEED", "0")),
        threads=torch.get_num_threads(),
        resume=resumes,
    )

    def line(report: Report) -> None:
        if trial.rank == 0:
            send({"step": report.step, **report.metrics})

    trial = ProgramContext(
        assignment,
        line,
        lambda: StopRequest.STOP if stop_requested() else None,
        rank=int(environment("RANK", "0")),
        world_size=int(environment("WORLD_SIZE", "1")),
        device=f"cuda:{environment('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu",
    )
    trial.preparing = prepare
    atexit.register(_end, trial)
    return trial


def _end(trial: Context) -> None:
    if trial.loop is not None:
        trial.loop.close(failed=trial.world_size > 1)  # another rank may be gone
        disconnect()
