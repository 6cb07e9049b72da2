"""A real Ray cluster of several nodes on this machine, one of which is lost while a sweep runs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automl.ledger import Ledger

SCRIPT = """
import json, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from automl import sweeps
from automl.dispatch import ray as dispatch
from automl.dispatch.session import environment
from automl.errors import AutomlError
from automl.ledger import Ledger
from objectives import make_spec, marked

store, what = sys.argv[1:]
dispatch.START_SECONDS, dispatch.LOST_SECONDS = 2.0, 6.0
head_cpus = 1 if what == "some" else 0

def slow(trial):
    for step in range(15):
        time.sleep(0.2)
        trial.report(step=step, loss=trial.params["lr"])
    return {"loss": trial.params["lr"], "node": float(int(ray.get_runtime_context().get_node_id()[:8], 16))}

with environment():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": head_cpus, "include_dashboard": False})
    node = cluster.add_node(num_cpus=2 - head_cpus)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    ledger = Ledger.open(store, create=True)
    spec = make_spec(trials=5, workers=2)
    ledger.create_sweep(spec)
    lost = threading.Event()

    def watch(snapshot):
        running = [trial for trial in snapshot.trials if trial.reports and str(trial.state) == "running"]
        if len(running) == 2 and not lost.is_set():
            lost.set()
            cluster.remove_node(node, allow_graceful=False)

    try:
        snapshot = sweeps.run(spec, ledger=ledger, objective=slow, on_change=watch)
        print(snapshot.state)
    except AutomlError as error:
        print("error:", error)
    ledger.close()
    ray.shutdown()
    cluster.shutdown()
"""


def run(store: Path, what: str) -> str:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    command = [sys.executable, "-c", SCRIPT, str(store), what]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def trials(store: Path) -> list[Any]:
    return Ledger.open(store, readonly=True).trials("test")


def test_a_sweep_goes_on_without_the_workers_of_a_node_that_is_lost(tmp_path: Path) -> None:
    assert run(tmp_path, "some") == "finished"
    found = trials(tmp_path)
    assert [str(trial.state) for trial in found] == ["completed"] * 5, [
        (trial.failure, trial.message) for trial in found
    ]
    assert sorted(trial.attempts for trial in found)[-1] >= 2, "the trial of the lost node was tried again"
    assert all([point.step for point in trial.reports] == list(range(15)) for trial in found)
    assert len({trial.metrics["node"] for trial in found}) == 1, json.dumps([dict(t.metrics) for t in found])


@pytest.mark.timeout(300)
def test_a_sweep_without_any_node_ends_with_the_cause_and_can_be_resumed(tmp_path: Path) -> None:
    said = run(tmp_path, "all")
    assert said.startswith("error: 2 of 2 workers are gone with their nodes")
    ledger = Ledger.open(tmp_path, readonly=True)
    assert ledger.snapshot("test").state == "failed"
    assert {str(trial.state) for trial in trials(tmp_path)} <= {"waiting", "interrupted", "failed"}
