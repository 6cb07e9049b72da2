"""Kills controllers, workers and nodes, and measures the time to resume."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from faults import POINTS
from soak_count import SoakCount
from soak_sweeps import launch, launch_ray, make_spec

from automl.ledger import Ledger

CONTROLLER_TRIALS = 12
RAY_TRIALS = 8


def soak_controllers(kills: int, seed: int, folder: Path) -> SoakCount:
    """Kill one controller after another at the failpoints in turn; each sweep outlives about 20."""
    rng = random.Random(seed)
    count = SoakCount("controllers")
    ledger = Ledger.open(folder, create=True)
    points = list(POINTS)
    while count.kills.total() < kills:
        name = ledger.create_sweep(make_spec(f"c{seed}-{count.sweeps}", CONTROLLER_TRIALS))
        for _ in range(20):
            point = points[count.kills.total() % len(points)]
            skip = rng.randrange(3 if point != "finished" else 1)
            child = launch(folder, name, point, skip)
            child.join()
            if child.exitcode == -signal.SIGKILL:
                count.kills[point] += 1
            elif child.exitcode != 0:
                count.problems.append(f"{name} at {point}: exit status {child.exitcode}")
            count.check(ledger, name)
            if count.kills.total() >= kills or ledger.snapshot(name).state == "finished":
                break
        launch(folder, name).join()
        count.finish(ledger, name, CONTROLLER_TRIALS)
    return count


def soak_workers(kills: int, seed: int, folder: Path) -> SoakCount:
    """Kill Ray workers of a controller at random moments of their attempts."""
    count = SoakCount("workers")
    os.environ["SOAK_PAUSE"] = "0.1"

    def strike(mark: str, rng: random.Random) -> None:
        if rng.random() < 0.85:
            time.sleep(rng.random() * 0.5)
            count.kills["worker"] += _kill(int(mark.split()[2]))

    _soak_ray(count, kills, seed, folder, None, strike)
    return count


def soak_nodes(kills: int, seed: int, folder: Path) -> SoakCount:
    """Remove nodes of a Ray cluster while they run a trial; each time another one joins."""
    from ray.cluster_utils import Cluster

    from automl.dispatch.ray.session import environment

    count = SoakCount("nodes")
    os.environ["SOAK_PAUSE"] = "0.3"
    with environment():
        head = {"num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

        def strike(mark: str, rng: random.Random) -> None:
            time.sleep(rng.random())
            cluster.remove_node(nodes.pop(rng.randrange(2)), allow_graceful=False)
            count.kills["node"] += 1
            nodes.append(cluster.add_node(num_cpus=1))

        _soak_ray(count, kills, seed, folder, cluster.address, strike)
        cluster.shutdown()
    return count


def _soak_ray(
    count: SoakCount,
    kills: int,
    seed: int,
    folder: Path,
    address: str | None,
    strike: Callable[[str, random.Random], None],
) -> None:
    """Run sweeps on Ray until there were enough kills; `strike` is called at each new attempt."""
    rng = random.Random(seed)
    ledger = Ledger.open(folder, create=True)
    while count.kills.total() < kills:
        spec = make_spec(f"{count.kind[0]}{seed}-{count.sweeps}", RAY_TRIALS, workers=2)
        name = ledger.create_sweep(spec)
        child = launch_ray(folder, name, address)
        known = 0
        last = time.monotonic()
        while child.is_alive():
            time.sleep(0.02)
            marks = _marks(ledger, name)
            if len(marks) > known:
                known = len(marks)
                last = time.monotonic()
                if count.kills.total() < kills:
                    strike(marks[-1], rng)
            count.watch(child, name, last)
        count.end(child, ledger, name, RAY_TRIALS)


def _marks(ledger: Ledger, name: str) -> list[str]:
    file = ledger.files(name).path / "marks"
    return file.read_text().splitlines() if file.exists() else []


def _kill(pid: int) -> int:
    """Kill a process; 1 if it was there, else 0."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1
