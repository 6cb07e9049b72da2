"""The nodes of a cluster: what a worker needs of one, which hold a gang, and their hardware.

The hardware is found by a task on each kind of node:

    python -m automl.dispatch.ray.nodes ADDRESS

A program of its own, so that the process that asks does not stay connected to Ray. It prints JSON.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from automl.core import Resources
from automl.dispatch.base import GangShape
from automl.errors import UsageError
from search_spaces.hardware import Hardware

SECONDS: Final = 120.0  # for the tasks on all kinds of nodes; torch takes seconds to load
_WORDS: Final = "the hardware of the cluster's nodes could not be found"


def cluster_hardware(address: str) -> Hardware:
    """What a trial may count on, on whatever node of a cluster it runs.

    Args:
        address: of the cluster, as for `ray.init`.

    Raises:
        UsageError: the cluster cannot be reached.
    """
    command = [sys.executable, "-m", __name__, address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{_WORDS} within {2 * SECONDS:g} s: is {address} busy?") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason is given"])[-1]
        raise UsageError(f"{_WORDS}: {reason}")
    rows = json.loads(done.stdout.splitlines()[-1])
    return combined([(Hardware.from_dict(row["hardware"]), row["count"]) for row in rows])


def combined(nodes: Iterable[tuple[Hardware, int]]) -> Hardware:
    """One machine that can do what every node can; its cores and GPUs are those of all nodes.

    If some nodes have GPUs, the others do not count: by default a trial has a GPU.

    Args:
        nodes: the hardware of each kind, and how many nodes are of it; at least one.
    """
    found = list(nodes)
    with_gpus = [(hardware, count) for hardware, count in found if hardware.gpus]
    counted = with_gpus or found
    machines = [hardware for hardware, _ in counted]
    first = machines[0]

    def shared(name: str) -> tuple[str, ...]:
        return tuple(
            value
            for value in getattr(first, name)
            if all(value in getattr(machine, name) for machine in machines)
        )

    return Hardware(
        num_cpus=sum(hardware.num_cpus * count for hardware, count in counted),
        memory_bytes=min(hardware.memory_bytes for hardware in machines),
        gpus=tuple(gpu for hardware, count in counted for gpu in hardware.gpus * count),
        precisions=shared("precisions"),
        backends=shared("backends"),
        host=first.host if len(machines) == 1 else "",
        slow={name: why for hardware in machines for name, why in hardware.slow.items()},
        rpc=all(hardware.rpc for hardware in machines),
    )


def needs(resources: Resources) -> dict[str, float]:
    """What a worker needs, as Ray names it."""
    needed: dict[str, float] = {"CPU": resources.cpus, "GPU": resources.gpus}
    return {key: value for key, value in needed.items() if value}


def choose(free: Mapping[int, str], shape: GangShape) -> list[int] | None:
    """The slots for a gang, by rank: on the fewest nodes, ranks that must be together on one.

    Args:
        free: the node of each free slot.

    Returns:
        None if there are too few, or too few together.
    """
    nodes: dict[str, list[int]] = {}
    for slot in sorted(free):
        nodes.setdefault(free[slot], []).append(slot)
    # Nodes hold whole groups of ranks only. The fullest node first takes the fewest nodes; the last
    # one is that with the least room to spare.
    rooms = {node: len(slots) - len(slots) % shape.together for node, slots in nodes.items()}
    chosen: list[int] = []
    while (missing := shape.ranks - len(chosen)) > 0:
        if not any(rooms.values()):
            return None
        if fitting := [node for node, room in rooms.items() if room >= missing]:
            node = min(fitting, key=lambda one: len(nodes[one]))
        else:
            node = max(rooms, key=lambda one: rooms[one])
        chosen += nodes[node][: min(missing, rooms.pop(node))]
    return chosen


def _look() -> dict[str, Any]:
    """Run on a node: its hardware."""
    from search_spaces.hardware import detect

    return asdict(detect())


def _groups(nodes: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[str]]:
    """Ids of the nodes that are alike: with the same kind of GPU, and as many CPUs and GPUs."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for node in nodes:
        own = node["Resources"]
        if node["Alive"] and own.get("CPU", 0) >= 1:  # trials cannot run on the others
            kinds = sorted(name for name in own if name.startswith("accelerator_type:"))
            groups.setdefault((own["CPU"], own.get("GPU", 0), *kinds), []).append(node["NodeID"])
    return groups


def main(address: str) -> None:
    """Print the hardware and number of the nodes of each kind."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(address=address, log_to_driver=False, configure_logging=False)
    look = ray.remote(_look)
    groups = _groups(ray.nodes())
    if not groups:
        sys.exit("no node of the cluster has CPUs")
    tasks = {}
    for key, nodes in groups.items():
        place = NodeAffinitySchedulingStrategy(nodes[0], soft=False)
        # No CPU, since others may use all; a GPU, or Ray would hide them from the task.
        tasks[key] = look.options(
            num_cpus=0,
            num_gpus=0,
            scheduling_strategy=place,
            runtime_env={"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}},
        ).remote()
    rows = []
    for key, task in tasks.items():
        hardware = {**ray.get(task, timeout=SECONDS), "num_cpus": int(key[0])}
        hardware["gpus"] = hardware["gpus"][: int(key[1])]
        rows.append({"count": len(groups[key]), "hardware": hardware})
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
