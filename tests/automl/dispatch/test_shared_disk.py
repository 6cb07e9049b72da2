"""A cluster with a node that does not see the store, and a trial that was moved to one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workers.artifacts.attempts import moved
from workers.context import Context
from workers.protocol import Assignment, open_log

SCRIPT = """
import contextlib, json, os, subprocess, sys, time, warnings
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
import automl
from automl.ledger import Ledger

store = Path(sys.argv[1]) / "store"
store.mkdir()
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
started = f"exec ray start --address {cluster.address}"
hidden = f"mount -t tmpfs none {store} && {started} --num-cpus 1 --block"
subprocess.Popen(["unshare", "--mount", "sh", "-c", hidden])
end = time.monotonic() + 90
while sum(node["Alive"] for node in ray.nodes()) < 2:
    assert time.monotonic() < end, "the second node has not come"
    time.sleep(0.2)

def objective(trial):
    return {"loss": trial.params["x"]}

def run(name, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        automl.sweep(
            objective, {"x": (0.0, 1.0)}, "minimize loss", trials=1, workers=1, name=name,
            suggester="random", store=store, progress=False, dispatcher="ray", **options,
        )
    with contextlib.closing(Ledger.open(store, readonly=True)) as ledger:
        notes = [event.message for event in ledger.events(name) if type(event).__name__ == "Noted"]
    return {"warned": [str(w.message) for w in caught if "do not see" in str(w.message)],
            "notes": [note for note in notes if "do not see" in note]}

found = {
    "without": run("without"),
    "with": run("with", artifacts=Path(sys.argv[1]) / "kept"),
    "tokens": [str(path) for path in store.rglob("token-*")],
}
Path(sys.argv[1], "found.json").write_text(json.dumps(found))
os._exit(0)
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a node that does not see the store needs root and unshare",
)
@pytest.mark.timeout(280)
def test_nodes_that_do_not_see_the_store_are_told_before_the_sweep_begins(tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("mount namespaces are not allowed here")
    log = tmp_path / "log"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("w") as file:  # no pipe: Ray's processes would keep it open
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={**os.environ, "PATH": path},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        assert process.wait(240) == 0, log.read_text()[-4000:]
    finally:
        _end(process.pid)
    found = json.loads((tmp_path / "found.json").read_text())
    (message,) = found["without"]["warned"]
    assert found["without"]["notes"] == [message]
    assert f"do not see the folder {tmp_path / 'store' / 'sweeps' / 'without'}" in message
    assert "--artifacts" in message
    assert found["with"] == {"warned": [], "notes": []}
    assert found["tokens"] == []


def _end(session: int) -> None:
    """End whatever the process has started and left behind."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                process.send_signal(signal.SIGKILL)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue


def test_the_message_of_a_trial_says_that_it_was_moved_without_its_files(tmp_path: Path) -> None:
    def context(attempt: int) -> Context:
        one = Assignment("s", 0, attempt, {}, None, str(tmp_path), resume=attempt > 1)
        open_log(one, 0).close()
        return Context(one)

    assert "began anew: the files of its earlier attempts are not on" in moved(context(2))
    assert moved(context(1)) == ""
    assert moved(context(3)) == "", "attempt 2 ran here"
