"""Machines that are cut off or lost while sweeps run on them, and an autoscaler. Needs root.

    python tests/stress/machine_losses.py [CASE ...]

Each case takes minutes. The last line is the verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from automl.ledger.lease import STALE_SECONDS
from tests import machines
from tests.automl import postgres
from tests.machine_sweeps import OBJECTIVE, Sweep
from tests.machines import WORK, Machine, Machines, start_head, start_node
from tests.stress import translation_hosts

AUTOSCALER = {
    "cluster_name": "fake",
    "max_workers": 2,
    "idle_timeout_minutes": 0.2,
    "file_mounts_sync_continuously": False,
    "provider": {
        "type": "fake_multinode",
        "head_node_id": "f" * 56,
        "disable_node_updaters": True,  # its nodes are processes: nothing is to be set up by SSH
    },
    "available_node_types": {
        "cpu": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2},
        "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    },
    "head_node_type": "head",
    "upscaling_speed": 4.0,
    # Ray's wheel lacks the file with the defaults of these.
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
    "rsync_exclude": [],
    "rsync_filter": [],
}
POSTGRES = """
import sys, tempfile
from pathlib import Path
from tests.automl.postgres import PostgresServer

folder = Path(tempfile.mkdtemp())
server = PostgresServer(folder)
server.stop()
for name, line in (
    ("postgresql.conf", "listen_addresses='*'"), ("pg_hba.conf", "host all all 10.77.0.0/24 trust")
):
    with (folder / "data" / name).open("a") as file:
        file.write(line + "\\n")
server.start()
print(server.database().replace("127.0.0.1", sys.argv[1]))
"""


def main() -> int:
    """Run the chosen cases, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--data-dir",
        default=Path(__file__).parents[3] / "shared" / "data",
        type=Path,
        help="folder of the real data sets, for the case translation",
    )
    arguments = parser.parse_args()
    chosen = arguments.cases
    if unknown := set(chosen) - CASES.keys():
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    if why := machines.missing():
        print(f"no machines can be made here: {why}")
        return 2
    failed = []
    for name in chosen or list(CASES):
        with machines.machines() as cluster, tempfile.TemporaryDirectory() as folder:
            try:
                said = CASES[name](cluster, Path(folder), arguments.data_dir)
                print(f"{name}: {said}", flush=True)
            except AssertionError as error:
                failed.append(name)
                print(f"{name}: {str(error)[-3000:]}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "ok: every trial ended, nothing was lost")
    return bool(failed)


def of(cluster: Machines, *names: str) -> list[Machine]:
    """New machines that have the objective."""
    made = [cluster.add(name) for name in names]
    for machine in made:
        machine.write("work.py", OBJECTIVE)
    return made


def controller_lost(cluster: Machines, folder: Path, data: Path) -> str:
    """The controller's machine is turned off; another machine resumes, from PostgreSQL."""
    if why := postgres.missing():
        return f"not run: {why}"
    alpha, beta = of(cluster, "alpha", "beta")
    store = alpha.run("python", "-c", POSTGRES, alpha.address).split()[-1]
    head = start_head(alpha, 1)
    start_node(beta, head, 1)
    lost = Sweep(beta, folder, "moved", alpha, workers=1, trials=3, steps=75, store=store)
    lost.machine = alpha  # it is looked at from the machine that stays
    lost.until(lambda states: "running" in states)
    beta.kill()
    time.sleep(STALE_SECONDS + 1.0)
    again = Sweep(alpha, folder, "moved", alpha, workers=1, trials=3, steps=75, store=store)
    trials = again.result()
    assert [state for state, *_ in trials] == ["completed"] * 3, trials
    assert sum(attempts for _, attempts, *_ in trials) == 4, trials
    return "3 trials completed, the running one began again"


def cut_off(cluster: Machines, folder: Path, data: Path) -> str:
    """A machine is cut off for a minute, and joins again with a new Ray."""
    alpha, beta, gamma = of(cluster, "alpha", "beta", "gamma")
    head = start_head(alpha, 1)
    for machine in (beta, gamma):
        start_node(machine, head, 1)
    sweep = Sweep(alpha, folder, "cut", alpha, workers=3, ranks=1, trials=12, steps=75)
    sweep.until(lambda states: states.count("running") == 3)
    gamma.cut()
    time.sleep(60.0)
    gamma.join()
    gamma.run("ray", "stop", "--force")  # Ray gives a node up that was away; a service restarts it
    start_node(gamma, head, 1)
    trials = sweep.result(600.0)
    assert {state for state, *_ in trials} == {"completed"}, trials
    assert sum(attempts for _, attempts, *_ in trials) == 13, trials
    assert {loss for _, _, loss, *_ in trials} == {1.0}, trials
    return "12 trials completed, the one that was cut off began again"


def autoscaled(cluster: Machines, folder: Path, data: Path) -> str:
    """Ray's fake autoscaler starts nodes for the trials that wait."""
    (alpha,) = of(cluster, "alpha")
    alpha.write("cluster.json", json.dumps(AUTOSCALER))
    start_head(alpha, 0, autoscaling_config=f"{WORK}/cluster.json")
    sweep = Sweep(alpha, folder, "grows", alpha, workers={"min": 1, "max": 4}, trials=24, steps=15)
    sweep.until(lambda states: states.count("running") == 4)
    trials = sweep.result(600.0)
    assert {state for state, *_ in trials} == {"completed"}, trials
    return "two nodes were started for four trials at a time"


CASES: dict[str, Callable[[Machines, Path, Path], str]] = {
    "controller-lost": controller_lost,
    "cut-off": cut_off,
    "autoscaled": autoscaled,
    "translation": translation_hosts.hosts,
}

if __name__ == "__main__":
    sys.exit(main())
