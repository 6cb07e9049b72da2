"""A Ray cluster of several nodes on this machine, which are lost while sweeps run on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from alone import told_by
from objectives import quick

from automl import sweeps
from automl.ledger import Ledger

SCRIPT = """
import json, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from automl import sweeps
from automl.dispatch.ray import dispatcher, pool
from automl.dispatch.ray.session import environment
from automl.errors import AutomlError
from automl.ledger import Ledger
from objectives import make_spec

told = []
pool.NODE_POLL_SECONDS = 0.5
dispatcher.ALL_LOST_SECONDS = 5.0

def slow(trial):
    for step in range(15):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.params["lr"])
    return {"loss": trial.params["lr"]}

def sweep(name, workers, lose):
    lost = []

    def watch(snapshot):
        running = [trial for trial in snapshot.trials if trial.state == "running"]
        if sum(bool(trial.reports) for trial in running) == workers and not lost:
            lost.append(True)
            lose()

    spec = make_spec(name, trials=5, workers=workers)
    ledger.create_sweep(spec)
    try:
        told.append(str(sweeps.run(spec, ledger=ledger, objective=slow, on_change=watch).state))
    except AutomlError as error:
        told.append(str(error))

with environment():
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    ledger = Ledger.open(sys.argv[1], create=True)
    sweep("one", 2, lambda: cluster.remove_node(nodes[1], allow_graceful=False))
    sweep("all", 1, lambda: cluster.remove_node(nodes[0], allow_graceful=False))
    ledger.close()
Path(sys.argv[1], "told.json").write_text(json.dumps(told))
"""


@pytest.mark.timeout(300)
def test_a_sweep_survives_a_lost_node_and_ends_if_all_nodes_are_lost(tmp_path: Path) -> None:
    one, none = told_by(SCRIPT, tmp_path)
    ledger = Ledger.open(tmp_path)
    trials = ledger.trials("one")
    assert one == "finished"
    assert [str(trial.state) for trial in trials] == ["completed"] * 5, [
        trial.message for trial in trials
    ]
    assert max(trial.attempts for trial in trials) == 2, (
        "the trial of the lost node was tried again, once"
    )
    assert all([point.step for point in trial.reports] == list(range(15)) for trial in trials)

    assert none.startswith("for 5 s no worker could be started in place of those that were lost")
    assert ledger.snapshot("all").state == "failed"
    ended = {str(trial.state) for trial in ledger.trials("all")}
    assert ended <= {"waiting", "interrupted", "completed"}
    after = sweeps.run(
        ledger.spec("all"), ledger=ledger, objective=quick, dispatcher="inline", resume=True
    )
    assert (after.state, [str(trial.state) for trial in after.trials]) == (
        "finished",
        ["completed"] * 5,
    )
    ledger.close()
