"""A real Ray cluster of several nodes on this machine, which are lost one after the other while sweeps run on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from automl.ledger import Ledger

SCRIPT = """
import sys, time
import ray
from ray.cluster_utils import Cluster
from automl import sweeps
from automl.dispatch import ray as dispatch
from automl.dispatch.session import environment
from automl.errors import AutomlError
from automl.ledger import Ledger
from objectives import make_spec

store = sys.argv[1]
dispatch.START_SECONDS, dispatch.LOST_SECONDS = 2.0, 5.0

def slow(trial):
    for step in range(15):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.params["lr"])
    return {"loss": trial.params["lr"]}

def sweep(name, workers, node):
    lost = []

    def watch(snapshot):
        if sum(bool(trial.reports) for trial in snapshot.trials if trial.state == "running") == workers and not lost:
            lost.append(node)
            cluster.remove_node(node, allow_graceful=False)

    spec = make_spec(name, trials=5, workers=workers)
    ledger.create_sweep(spec)
    return sweeps.run(spec, ledger=ledger, objective=slow, on_change=watch).state

with environment():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    ledger = Ledger.open(store, create=True)
    print(sweep("one", 2, nodes[1]))
    try:
        sweep("all", 1, nodes[0])
    except AutomlError as error:
        print(error)
    ledger.close()
    ray.shutdown()
    cluster.shutdown()
"""


def test_a_sweep_goes_on_without_a_node_that_is_lost_and_ends_with_the_cause_without_any(tmp_path: Path) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    ledger = Ledger.open(tmp_path, readonly=True)
    trials = ledger.trials("one")
    assert said[-2] == "finished"
    assert [str(trial.state) for trial in trials] == ["completed"] * 5, [trial.message for trial in trials]
    assert max(trial.attempts for trial in trials) == 2, "the trial of the lost node was tried again, once"
    assert all([point.step for point in trial.reports] == list(range(15)) for trial in trials)

    assert said[-1].startswith("1 of 1 workers are gone with their nodes")
    assert ledger.snapshot("all").state == "failed"
    assert {str(trial.state) for trial in ledger.trials("all")} <= {"waiting", "interrupted", "failed"}
