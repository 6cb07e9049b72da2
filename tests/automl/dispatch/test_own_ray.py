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
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from objectives import quick

from automl import sweeps
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


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a controller in a process group of its own; none is left, and so no Ray of one."""
    here, started = Path(__file__).parents[1], []
    path = os.pathsep.join([str(here), str(here.parents[1])])

    def start(what: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "store"), what],
            env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path / "home")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def until(process: subprocess.Popen[str], what: Callable[[], Any], seconds: float = 500.0) -> Any:
    """What a function returns, once it is true; the process must run."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def listed(dashboard: str, what: str, token: Path) -> list[dict[str, Any]]:
    """What the Ray dashboard shows of tasks or actors."""
    request = urllib.request.Request(f"{dashboard}/api/v0/{what}?detail=1")
    request.add_header("Authorization", f"Bearer {token.read_text().strip()}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]["result"]
    return found


def own_folder(processes: list[psutil.Process]) -> Path:
    """The temporary folder that only Ray of this sweep has."""
    words = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # the process of an attempt, which has ended
            words += process.cmdline()
    found = {match[0] for word in words if (match := re.search(r"/\S*/automl-ray-\w+", word))}
    (only,) = found
    return Path(only)


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
def test_a_ray_of_our_own_is_private_quiet_and_ends_with_its_controller(
    tmp_path: Path, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    store.mkdir()
    told = store / "dashboard"
    controller = start("begin")
    dashboard = until(controller, lambda: told.exists() and told.read_text())

    token = home / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{dashboard}/api/jobs/", timeout=30)
    assert caught.value.code == 401
    name = "test/0.1 lr=0.001 optimizer=adam"  # Ray tells it late
    tasks = partial(listed, dashboard, "tasks", token)
    until(controller, lambda: any(task["name"].startswith(name) for task in tasks()), 60)
    workers = {actor["repr_name"] for actor in listed(dashboard, "actors", token)}
    assert workers & {"test worker 0", "test worker 1"}, workers  # the other may be starting

    children = children_of(controller)
    assert listening(children) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

    # Ctrl-C in a terminal goes to the whole process group.
    os.killpg(controller.pid, signal.SIGINT)
    output, errors = controller.communicate(timeout=120)
    assert (controller.returncode, output, errors) == (130, "", "")
    assert not psutil.wait_procs(children, timeout=15)[1]
    ledger = Ledger.open(store)
    assert {trial.state for trial in ledger.trials("test")} == {TrialState.INTERRUPTED}
    assert ledger.snapshot("test").state == "interrupted"

    # A controller that is killed takes its Ray with it, and another one resumes.
    killed = start("resume")
    until(killed, lambda: any(one.state == TrialState.RUNNING for one in ledger.trials("test")))
    children = children_of(killed)
    folder = own_folder(children)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    sockets = [path for path in folder.rglob("*") if path.is_socket()]
    assert {path.name for path in sockets} >= {"raylet", "plasma_store"}
    killed.kill()
    killed.wait()
    mortal = [one for one in children if not is_agent(one)]
    assert not psutil.wait_procs(mortal, timeout=60)[1]
    shutil.rmtree(folder)
    spec = ledger.spec("test")
    last = sweeps.run(spec, ledger=ledger, objective=quick, dispatcher="inline", resume=True)
    assert [trial.state for trial in last.trials] == [TrialState.COMPLETED] * 4
    assert all(len(trial.reports) == 3 for trial in last.trials)
