"""A Ray cluster of several nodes: gangs across them, nodes that are lost, nodes that join.

All in one process without another Ray, because the start of a cluster is slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alone import told_by
from objectives import quick

from automl import sweeps
from automl.ledger import Ledger

pytestmark = pytest.mark.timeout(500)
SCRIPT = """
import concurrent.futures, json, os, signal, sys, time, traceback
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from automl import sweeps
from automl.core import Budget, Resources
from automl.dispatch.ray import dispatcher as ray_dispatcher, pool
from automl.dispatch.ray.session import environment
from automl.errors import AutomlError
from automl.ledger import Ledger
from automl.workflows import steering
from objectives import make_spec
from workers.protocol import Assignment, Outcome, Report
import toy

folder = Path(sys.argv[1])
pool.NODE_POLL_SECONDS = 0.5
pool.IDLE_SECONDS = 2.0
ray_dispatcher.ALL_LOST_SECONDS = 5.0

# gangs across three nodes

def gang(trial):
    if trial.params.get("dies") == trial.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return toy.objective(trial)

def attempt(dispatcher, trial, strategy, ranks, **params):
    events = []
    params = {"parallelism": strategy, "max_updates": 3, "evaluate_updates": 1, **params}
    while dispatcher._pool.starting:
        dispatcher.poll(events.append, 0.1)
    nodes = set(dispatcher._pool.nodes.values())
    place = str(folder / str(trial))
    dispatcher.submit(Assignment("cluster", trial, 1, params, None, place, num_ranks=ranks, seed=7))
    end = time.monotonic() + 100.0
    while not (done := [e for e in events if isinstance(e, Outcome)]):
        if time.monotonic() > end:
            sys.exit("".join(log.read_text() for log in (folder / str(trial)).glob("logs/*")))
        dispatcher.poll(events.append, 0.1)
    while dispatcher.free_slots < 3 and time.monotonic() < end:  # lost workers are replaced
        dispatcher.poll(events.append, 0.1)
    losses = [e.metrics["train_loss"] for e in events if isinstance(e, Report)]
    told = {"failure": done[0].failure, "message": done[0].message, "nodes": len(nodes)}
    return {**told, "losses": losses, "free": dispatcher.free_slots}

def gangs(address):
    made = ray_dispatcher.RayDispatcher("cluster", 3, Resources(), objective=gang, address=address)
    try:
        return [attempt(made, trial, name, n, **more) for trial, (name, n, more) in enumerate(WHAT)]
    finally:
        made.close()

# nodes that are lost

held = folder / "held"

def slow(trial):
    for step in range(10):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.params["lr"])
        while held.exists():  # or a trial ends before its node is lost, if the machine is busy
            time.sleep(0.1)
    return {"loss": trial.params["lr"]}

def losing(name, workers, lose):
    lost = []

    def watch(snapshot):
        running = [bool(trial.reports) for trial in snapshot.trials if trial.state == "running"]
        if lost and sum(running) < workers:
            held.unlink(missing_ok=True)
        elif sum(running) == workers and not lost:
            lost.append(True)
            lose()

    spec = make_spec(name, trials=4, workers=workers)
    ledger.create_sweep(spec)
    held.touch()
    try:
        return str(sweeps.run(spec, ledger=ledger, objective=slow, on_change=watch).state)
    except AutomlError as error:
        return str(error)
    finally:
        held.unlink(missing_ok=True)

# a node that is lost while its worker starts

class Objective:
    # takes for ever to load the first time

    def __call__(self, trial):
        return slow(trial)

    def __reduce__(self):
        return load, (folder / "loading",)

def load(mark):
    if not mark.exists():
        mark.touch()
        time.sleep(300.0)
    return slow

def starting(address):
    pool.MAX_FAILED_STARTS, ray_dispatcher.ALL_LOST_SECONDS = 1, 90.0
    node = cluster.add_node(num_cpus=2)
    made = ray_dispatcher.RayDispatcher("s", 2, Resources(), objective=Objective(), address=address)
    try:
        until(lambda: made.poll(print, 0.1) or (folder / "loading").exists())
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=2)
        until(lambda: made.poll(print, 0.1) or made.free_slots == 2)
        return made._pool.num_replaced
    finally:
        made.close()

# a node that joins, and `automl set workers=N`

seen, for_main_thread = [], []

def until(what, seconds=100.0):
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, seen[-3:]
        time.sleep(0.05)

def busy():
    return seen[-1].busy_slots if seen else 0

def watch(snapshot):
    seen.append(snapshot)
    while for_main_thread:
        for_main_thread.pop()()

def person(told):
    ledger = Ledger.open(folder)
    until(lambda: busy() == 2)
    for_main_thread.append(lambda: cluster.add_node(num_cpus=4))  # it sets handlers of signals
    until(lambda: not for_main_thread)
    until(lambda: busy() == 6)
    told["scaled"] = steering.change(ledger, "joining", {"workers": 2})
    until(lambda: busy() == 2 and seen[-1].num_slots == 2)
    steering.change(ledger, "joining", {"workers": 4})
    until(lambda: busy() == 4)
    told["after"] = steering.change(ledger, "joining", {"workers": {"min": 1, "max": 3}})
    steering.change(ledger, "joining", {"budget.trials": len(seen[-1].trials) + 2})

def fail(error):
    traceback.print_exception(error)
    os._exit(1)

def joining(address):
    spec = make_spec("joining", budget=Budget(trials=500), workers={"min": 2, "max": 8})
    ledger.create_sweep(spec)
    told = {}
    with concurrent.futures.ThreadPoolExecutor(1) as threads:  # a failure of the person ends all
        does = threads.submit(person, told)
        does.add_done_callback(lambda done: done.exception() and fail(done.exception()))
        options = {"objective": slow, "ray_address": address, "on_change": watch}
        snapshot = sweeps.run(spec, ledger=ledger, **options)
    stored = ledger.spec("joining").workers
    trials = [[str(one.state), one.attempts, one.message] for one in snapshot.trials]
    return {**told, "trials": trials, "workers": [stored.min, stored.max]}

with environment():
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    cluster.wait_for_nodes()
    found = {"gangs": gangs(cluster.address)}
    cluster.remove_node(nodes[2])
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    ledger = Ledger.open(folder, create=True)
    lost = {"allow_graceful": False}
    found["one"] = losing("one", 2, lambda: cluster.remove_node(nodes[1], **lost))
    found["all"] = losing("all", 1, lambda: cluster.remove_node(nodes[0], **lost))
    ray.shutdown()
    found["starting"] = starting(cluster.address)
    found["joining"] = joining(cluster.address)
    ledger.close()
Path(folder, "told.json").write_text(json.dumps(found))
os._exit(0)
"""
WHAT = [
    ("single", 1, {}),
    ("ddp", 3, {}),
    ("ddp", 3, {"dies": 2}),
    ("embedding_server", 3, {}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def told(folder: Path) -> Any:
    return told_by(SCRIPT.replace("WHAT", repr(WHAT)), folder)


def test_gangs_across_three_nodes_compute_what_one_process_does_and_free_all_when_a_rank_dies(
    told: Any,
) -> None:
    alone = told["gangs"][0]["losses"]
    assert len(alone) == 3
    for (_, _, params), attempt in zip(WHAT, told["gangs"], strict=True):
        assert (attempt["nodes"], attempt["free"]) == (3, 3)
        if params:
            assert attempt["failure"] == "crashed"
            assert attempt["message"].startswith("rank 2: the worker")
        else:
            assert attempt["failure"] is None, attempt
            assert attempt["losses"] == pytest.approx(alone, rel=1e-5)


def test_a_sweep_survives_a_lost_node_and_ends_if_all_nodes_are_lost(
    told: Any, folder: Path
) -> None:
    ledger = Ledger.open(folder)
    trials = ledger.trials("one")
    assert told["one"] == "finished"
    assert [str(trial.state) for trial in trials] == ["completed"] * 4, [
        trial.message for trial in trials
    ]
    assert max(trial.attempts for trial in trials) == 2, (
        "the trial of the lost node was tried again, once"
    )
    assert all([point.step for point in trial.reports] == list(range(10)) for trial in trials)

    why = "for 5 s no worker could be started in place of those that were lost"
    assert told["all"].startswith(why)
    assert ledger.snapshot("all").state == "failed"
    ended = {str(trial.state) for trial in ledger.trials("all")}
    assert ended <= {"waiting", "interrupted", "completed"}
    after = sweeps.run(
        ledger.spec("all"), ledger=ledger, objective=quick, dispatcher="inline", resume=True
    )
    assert (after.state, [str(trial.state) for trial in after.trials]) == (
        "finished",
        ["completed"] * 4,
    )
    ledger.close()


def test_a_worker_whose_node_is_lost_while_it_starts_is_replaced(told: Any) -> None:
    assert told["starting"] >= 2  # both slots, more often if Ray takes the lost node again


def test_workers_come_with_a_node_and_go_if_a_person_says_so_without_a_failed_trial(
    told: Any,
) -> None:
    joining = told["joining"]
    assert {state for state, _, _ in joining["trials"]} == {"completed"}, joining["trials"]
    assert {attempts for _, attempts, _ in joining["trials"]} == {1}
    assert joining["scaled"] == "the sweep has 2 workers from now on"
    assert joining["after"] == "the sweep has 1 to 3 workers from now on"
    assert joining["workers"] == [1, 3]
