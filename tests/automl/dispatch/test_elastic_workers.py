"""Workers that come and go while a sweep runs: a node that joins, and `automl set workers=N`."""

from __future__ import annotations

from pathlib import Path

import pytest
from alone import told_by

BEGIN = """
import concurrent.futures, json, os, sys, time, traceback
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from automl import sweeps
from automl.core import Budget
from automl.dispatch.ray import pool
from automl.dispatch.ray.session import environment
from automl.ledger import Ledger
from automl.workflows import steering
from objectives import make_spec

pool.IDLE_SECONDS = 2.0
pool.NODE_POLL_SECONDS = 0.5
folder = Path(sys.argv[1])
seen, for_main_thread = [], []

def nap(trial):
    for step in range(4):
        time.sleep(0.25)
        trial.report(step=step, loss=trial.params["lr"])
    return {"loss": trial.params["lr"]}

def until(what, seconds=100.0):
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, seen[-3:]
        time.sleep(0.05)
    return time.monotonic() - begun

def busy():
    return seen[-1].busy_slots if seen else 0

def told(snapshot, **more):
    trials = [[str(one.state), one.attempts, one.message] for one in snapshot.trials]
    Path(folder, "told.json").write_text(json.dumps({"trials": trials, **more}))

def run(spec, address, person):
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(spec)
    # A failure of the person ends this process.
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        does = threads.submit(person)
        does.add_done_callback(lambda done: done.exception() and fail(done.exception()))
        return sweeps.run(
            spec, ledger=ledger, objective=nap, ray_address=address, on_change=watch
        )

def watch(snapshot):
    seen.append(snapshot)
    while for_main_thread:
        for_main_thread.pop()()

def fail(error):
    traceback.print_exception(error)
    os._exit(1)
"""
JOINING = """
def person():
    ledger = Ledger.open(folder)
    until(lambda: busy() == 2)
    for_main_thread.append(lambda: cluster.add_node(num_cpus=4))  # it sets handlers of signals
    until(lambda: not for_main_thread)
    joined["seconds"] = until(lambda: busy() == 6)
    joined["scaled"] = steering.change(ledger, "test", {"workers": 2})
    joined["drained"] = until(lambda: busy() == 2 and seen[-1].num_slots == 2)
    joined["again"] = steering.change(ledger, "test", {"workers": 4})
    joined["busy again"] = until(lambda: busy() == 4)
    joined["after"] = steering.change(ledger, "test", {"workers": {"min": 1, "max": 3}})
    steering.change(ledger, "test", {"budget.trials": len(seen[-1].trials) + 2})

joined = {}
with environment():
    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    spec = make_spec("test", budget=Budget(trials=500), workers={"min": 2, "max": 8})
    snapshot = run(spec, cluster.address, person)
    stored = Ledger.open(folder).spec("test")
    told(snapshot, **joined, workers=[stored.workers.min, stored.workers.max])
"""


@pytest.mark.timeout(300)
def test_workers_come_with_a_node_and_go_if_a_person_says_so_without_a_failed_trial(
    tmp_path: Path,
) -> None:
    told = told_by(BEGIN + JOINING, tmp_path)
    assert {state for state, _, _ in told["trials"]} == {"completed"}, told["trials"]
    assert {attempts for _, attempts, _ in told["trials"]} == {1}
    assert told["scaled"] == "the sweep has 2 workers from now on"
    assert told["after"] == "the sweep has 1 to 3 workers from now on"
    assert told["workers"] == [1, 3]
