"""Sweeps that run on the machines of `tests/machines.py`; the trials add up over their ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import machines
from tests.machines import WORK, Machine

OBJECTIVE = """
import os, socket, time

def meet(trial):
    total, hosts = 1.0 + trial.rank, [socket.gethostname()]
    several = trial.world_size > 1
    if several:
        import torch
        import torch.distributed as dist

        total *= torch.ones(1)
        dist.init_process_group("gloo")
        hosts = [None] * trial.world_size
        dist.all_gather_object(hosts, socket.gethostname())
    for step in range(trial.params["steps"]):
        time.sleep(0.2)
        if several:
            dist.all_reduce(total)
        trial.report(step=step, loss=float(total), machines=len(set(hosts)))
    if several:
        dist.destroy_process_group()
    return {"loss": float(total), "initial": ord(hosts[0][0])}
"""
SWEEP = """
import json, sys
from pathlib import Path
import automl
from automl.dispatch.ray import timeouts
from work import meet

timeouts.NODE_POLL_SECONDS = 1.0
name, head, workers, ranks, trials, steps, store, resources = json.loads(sys.argv[1])
result = automl.sweep(
    meet,
    {"lr": (0.1, 1.0), "steps": automl.Choice("steps", [steps])},
    "minimize loss",
    name=name, trials=trials, workers=workers, ranks=ranks, ray_address=head, suggester="random",
    resources=resources, store=store, resume=True, seed=1, max_retries=5, progress=False,
)
trials = [
    [
        str(one.state), one.attempts, *map(one.metrics.get, ("loss", "machines", "initial")),
        one.message, one.node_kind,
    ]
    for one in result.trials
]
Path(name + ".json").write_text(json.dumps(trials))
"""


class Sweep:
    """A sweep that a machine runs."""

    def __init__(
        self,
        machine: Machine,
        folder: Path,
        name: str,
        head: Machine,
        *,
        workers: int | dict[str, int] = 3,
        ranks: int = 1,
        trials: int = 4,
        steps: int = 3,
        store: str = f"{WORK}/store",
        resources: dict[str, Any] | None = None,
    ) -> None:
        self.machine = machine
        self.name = name
        self.store = store
        self.log = folder / f"{name}.log"
        address = f"{head.address}:{machines.HEAD_PORT}"
        given = [name, address, workers, ranks, trials, steps, store, resources]
        words = ("python", "-c", SWEEP, json.dumps(given))
        path = f"{WORK}:{machines.ROOT}"
        self.process = machine.start(*words, environment={"PYTHONPATH": path}, log=self.log)

    def states(self) -> list[str]:
        """The states of its trials, as `automl trials` tells them; none before the first."""
        words = ("python", "-m", "automl", "trials", self.name, "--json", "--store", self.store)
        try:
            found = json.loads(self.machine.run(*words))
        except AssertionError:
            return []  # there is no store yet
        return [trial["state"] for trial in found]

    def until(self, what: Callable[[list[str]], bool], seconds: float = 200.0) -> list[str]:
        """Wait until something is true of the states."""
        deadline = time.monotonic() + seconds
        while not what(states := self.states()):
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, (states, self.log.read_text()[-4000:])
        return states

    def result(self, seconds: float = 300.0) -> list[list[Any]]:
        """Of each trial: state, attempts, loss, number of machines, of which the first letter of
        the first, message, and the kind of the node.
        """
        assert self.process.wait(seconds) == 0, self.log.read_text()[-6000:]
        found: list[list[Any]] = json.loads(self.machine.read(f"{self.name}.json"))
        return found
