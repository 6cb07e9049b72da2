"""A Ray that `automl sweep` starts for itself: all in one process, because the start is slow."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from automl.core.trial import TrialState
from automl.ledger import Ledger

SCRIPT = """
import json, os, sys, time
from pathlib import Path
from objectives import make_spec, patient, quick
from automl import sweeps
from automl.ledger import Ledger

store, what = sys.argv[1:]
ledger = Ledger.open(store, create=True)
spec = make_spec(trials=4, workers=2)
if what != "resume":
    ledger.create_sweep(spec)
seen = []
def show(snapshot):
    if snapshot.dashboard and len(seen) < 1 and any(trial.reports for trial in snapshot.trials):
        seen.append(snapshot.dashboard)
        Path(store, "dashboard").write_text(snapshot.dashboard)
resume = what == "resume"
objective = quick if resume else patient
snapshot = sweeps.run(spec, ledger=ledger, objective=objective, on_change=show, resume=resume)
ledger.close()
os._exit(130 if snapshot.state == "interrupted" else 0)
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """A test that fails in the middle leaves no controller behind, which takes its Ray with it."""
    yield
    while STARTED:
        STARTED.pop().kill()


class ControllerProcess:
    """A controller in a process group of its own, and the Ray that it started."""

    def __init__(self, store: Path, what: str, home: Path) -> None:
        self.dashboard = store / "dashboard"
        self.dashboard.unlink(missing_ok=True)
        here = Path(__file__).parents[1]
        path = os.pathsep.join([str(here), str(here.parents[1])])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(store), what],
            env={**os.environ, "PYTHONPATH": path, "HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        STARTED.append(self.process)

    def wait_until_it_runs(self) -> str:
        deadline = time.monotonic() + 200
        while not (self.dashboard.exists() and self.dashboard.read_text()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return self.dashboard.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


def listed(dashboard: str, what: str, token: Path) -> list[dict[str, Any]]:
    """What the Ray dashboard shows of tasks or actors."""
    request = urllib.request.Request(f"{dashboard}/api/v0/{what}?detail=1")
    request.add_header("Authorization", f"Bearer {token.read_text().strip()}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]["result"]
    return found


def wait_for_task(dashboard: str, token: Path, name: str) -> bool:
    """Whether the dashboard lists a task whose name begins so; Ray tells it late."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(task["name"].startswith(name) for task in listed(dashboard, "tasks", token)):
            return True
        time.sleep(0.2)
    return False


def own_folder(processes: list[psutil.Process]) -> Path:
    """The temporary folder that only Ray of this sweep has."""
    words = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # the process of an attempt, which has ended
            words += process.cmdline()
    found = {match[0] for word in words if (match := re.search(r"/\S*/automl-ray-\w+", word))}
    (only,) = found
    return Path(only)


def left(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that have not ended after so long."""
    return psutil.wait_procs(processes, timeout=seconds)[1]


def is_agent(process: psutil.Process) -> bool:
    """Whether it is an agent of Ray, which notices only after a minute that its node has ended."""
    with suppress(psutil.NoSuchProcess):
        return any("agent" in word.lower() for word in process.cmdline())
    return False


def listening(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        try:
            connections: list[Any] = process.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    return found


@pytest.mark.timeout(600)
def test_a_ray_of_our_own_is_private_quiet_and_ends_with_its_controller(tmp_path: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    store.mkdir()
    controller = ControllerProcess(store, "begin", home)
    dashboard = controller.wait_until_it_runs()

    token = home / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{dashboard}/api/jobs/", timeout=30)
    assert caught.value.code == 401
    assert wait_for_task(dashboard, token, "test/0.1 lr=0.001 optimizer=adam")
    workers = {actor["repr_name"] for actor in listed(dashboard, "actors", token)}
    assert workers & {"test worker 0", "test worker 1"}, workers  # the other may be starting

    children = controller.children()
    assert listening(children) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

    # Ctrl-C in a terminal goes to the whole process group.
    os.killpg(controller.process.pid, signal.SIGINT)
    output, errors = controller.process.communicate(timeout=120)
    assert (controller.process.returncode, output, errors) == (130, "", "")
    assert not left(children, 15)
    ledger = Ledger.open(store)
    assert {trial.state for trial in ledger.trials("test")} == {TrialState.INTERRUPTED}
    assert ledger.snapshot("test").state == "interrupted"

    # A controller that is killed takes its Ray with it, and another one resumes.
    killed = ControllerProcess(store, "resume", home)
    while not any(trial.state is TrialState.RUNNING for trial in ledger.trials("test")):
        assert killed.process.poll() is None, killed.process.communicate()
        time.sleep(0.05)
    children = killed.children()
    folder = own_folder(children)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    sockets = [path for path in folder.rglob("*") if path.is_socket()]
    assert {path.name for path in sockets} >= {"raylet", "plasma_store"}
    killed.process.kill()
    killed.process.wait()
    assert not left([one for one in children if not is_agent(one)], 60)
    shutil.rmtree(folder)
    last = ControllerProcess(store, "resume", home)
    output, errors = last.process.communicate(timeout=300)
    assert (last.process.returncode, output, errors) == (0, "", "")
    trials = ledger.trials("test")
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 4
    assert all(len(trial.reports) == 3 for trial in trials)
