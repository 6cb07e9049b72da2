"""Gangs across the three nodes of a running cluster, in a process without another Ray."""

from __future__ import annotations

from pathlib import Path

import pytest
from alone import told_by

SCRIPT = """
import contextlib, json, os, signal, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from automl.dispatch.ray.session import environment
from workers.protocol import Assignment, Outcome, Report

folder = Path(sys.argv[1])
kept = contextlib.ExitStack()
kept.enter_context(environment())
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()

from automl.dispatch.ray.dispatcher import RayDispatcher
from automl.core.resources import Resources
import toy

def objective(trial):
    if trial.params.get("dies") == trial.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return toy.objective(trial)

dispatcher = RayDispatcher("cluster", 3, Resources(), objective=objective, address=cluster.address)
events = []

def attempt(trial, strategy, ranks, **params):
    params = {"parallelism": strategy, "max_updates": 3, "evaluate_updates": 1, **params}
    while dispatcher._pool.starting:
        dispatcher.poll(events.append, 0.1)
    nodes = set(dispatcher._pool.nodes.values())
    place = str(folder / str(trial))
    dispatcher.submit(Assignment("cluster", trial, 1, params, None, place, num_ranks=ranks, seed=7))
    end = time.monotonic() + 60.0
    while not (done := [e for e in events if isinstance(e, Outcome) and e.trial == trial]):
        if time.monotonic() > end:
            for gang in dispatcher._gangs.values():
                gang._dump()
            sys.exit("".join(log.read_text() for log in (folder / str(trial)).glob("logs/*")))
        dispatcher.poll(events.append, 0.1)
    while dispatcher.free_slots < 3 and time.monotonic() < end:  # lost workers are replaced
        dispatcher.poll(events.append, 0.1)
    losses = [e.metrics["train_loss"] for e in events if isinstance(e, Report) and e.trial == trial]
    failed = {"failure": done[0].failure, "message": done[0].message}
    told = {**failed, "losses": losses, "nodes": len(nodes)}
    return {**told, "free": dispatcher.free_slots, "traceback": done[0].details.get("traceback")}

found = [attempt(trial, name, ranks, **params) for trial, (name, ranks, params) in enumerate(WHAT)]
Path(folder, "told.json").write_text(json.dumps(found))
os._exit(0)
"""
WHAT = [
    ("single", 1, {}),
    ("ddp", 3, {}),
    ("ddp", 3, {"dies": 2}),
    ("embedding_server", 3, {}),
]


@pytest.mark.timeout(300)
def test_gangs_across_three_nodes_compute_what_one_process_does_and_free_all_when_a_rank_dies(
    tmp_path: Path,
) -> None:
    found = told_by(SCRIPT.replace("WHAT", repr(WHAT)), tmp_path)
    alone = found[0]["losses"]
    assert len(alone) == 3
    for (_, _, params), attempt in zip(WHAT, found, strict=True):
        assert (attempt["nodes"], attempt["free"]) == (3, 3)
        if params:
            assert attempt["failure"] == "crashed"
            assert attempt["message"].startswith("rank 2: the worker")
        else:
            assert attempt["failure"] is None, attempt
            assert attempt["losses"] == pytest.approx(alone, rel=1e-5)
