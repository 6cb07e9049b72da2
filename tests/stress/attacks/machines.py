"""What machines do to a sweep: memory runs out, an object store fails, a checkpoint is damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from attacks.frame import attack, automl, said
from automl.core import Trial, TrialState
from automl.ledger import Ledger

CONFIG = """name: s
space: {x: {low: 0.0, high: 1.0}}
goals: minimize loss
suggester: sobol
workers: 2
"""
HOARDS = """def objective(trial):
    hoard = []
    while trial.params["x"] > 0.52:  # trials 1, 2 and 4
        hoard.append(bytearray(8 << 20))
    return trial.params["x"]
"""
SAVES = """import os, sys, time

place = os.path.join(os.environ["AUTOML_CHECKPOINT_DIR"], "state")
begin = int(open(place).read()) + 1 if os.environ.get("AUTOML_RESUME") else 0
for step in range(begin, 9):
    with open(place, "w") as file:
        file.write(str(step))
    print("step", step, "loss", float(sys.argv[1]) + 1 / (step + 1), flush=True)
    if os.path.exists(os.environ["AUTOML_STOP"]):
        sys.exit(0)
    time.sleep(0.2)
"""
REPORTS = """stopper: {name: asha, grace: 2, factor: 2}
reports: {loss: 'loss (\\S+)', step: 'step (\\d+)'}
"""
LOCAL = ("--dispatcher", "local", "--trials", "6")
PROGRAM = ("--", sys.executable, "train.py", "{x}")
ENDED = (TrialState.COMPLETED, TrialState.STOPPED)
LIMIT = 1 << 30  # bytes, for the controller and both workers together


@attack(
    "the kernel takes the workers, the controller lives, and their trials are out of memory",
    seconds=150,
)
def a_control_group_without_memory(folder: Path) -> str:
    root = Path("/sys/fs/cgroup")
    newer = (root / "cgroup.controllers").exists()
    group = (root if newer else root / "memory") / f"automl-chaos-{os.getpid()}"
    limit = group / ("memory.max" if newer else "memory.limit_in_bytes")
    try:
        group.mkdir()
        limit.write_text(str(LIMIT))
    except OSError as error:
        return f"not tried: no control group can limit memory here ({error.strerror})"
    (folder / "s.yaml").write_text(CONFIG)
    (folder / "mine.py").write_text(HOARDS)
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        done = automl(folder, "sweep", "s.yaml", "--objective", "mine.py:objective", *LOCAL)
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):  # while a worker is being buried
            group.rmdir()
    assert done.returncode == 0, f"{said(done)} {done.stderr[-300:]}"
    assert "6 trials" in done.stdout
    assert "3 failed (3 out of memory)" in done.stdout, done.stdout[-500:]
    return "3 of 6 out of memory"


@attack("refused with one error before the sweep begins", seconds=300)
def an_object_store_that_fails(folder: Path) -> str:
    (folder / "s.yaml").write_text(CONFIG + REPORTS)
    (folder / "train.py").write_text(SAVES)
    answers = []
    for status in (403, 404, 503, 0):  # refuses, has no such bucket, is overloaded, is gone
        handler = type("Fails", (Fails,), {"status": status})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            variables = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
            place = ["--artifacts", "s3://bucket/x"]
            done = automl(folder, "sweep", "s.yaml", *LOCAL, *place, *PROGRAM, **variables)
            server.shutdown()
        assert done.returncode == 2, f"{status}: {said(done)}"
        assert not (folder / ".automl").exists(), "a store was made"
        answers.append(f"{status}: {done.stderr.strip()}")
    return "; ".join(answers)


class Fails(BaseHTTPRequestHandler):
    """An object store that answers every request with one status; 0 closes the connection."""

    status = 0

    def handle_one_request(self) -> None:
        """Answer."""
        super().handle_one_request() if self.status else self.connection.close()
        self.close_connection = True

    def answer(self) -> None:
        """Refuse."""
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method is answered alike."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@attack("their trials begin anew or go on from the checkpoint before, and none fails", seconds=300)
def checkpoints_damaged_while_paused(folder: Path) -> str:
    running = begun(folder)
    wait_for(folder, TrialState.PAUSED)
    wait_for(folder, TrialState.RUNNING)  # it is interrupted, so it surely goes on
    running.send_signal(signal.SIGINT)
    printed, errors = running.communicate(timeout=60)
    assert running.returncode == 130, printed + errors
    torn = list((folder / ".automl").rglob("checkpoints/state"))
    for place in torn:
        place.write_text("")
    done = automl(folder, "resume", "s", *LOCAL, *PROGRAM, seconds=90)
    assert done.returncode == 0, said(done)
    found = trials(folder)
    assert all(trial.state in ENDED for trial in found), found
    again = [trial.message for trial in found if "because its checkpoint fails" in trial.message]
    assert again, "no trial tells that its checkpoint was damaged"
    return f"{len(torn)} torn, {len(found)} trials ended: {again[0]}"


def begun(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A sweep of a program that pauses."""
    (folder / "s.yaml").write_text(CONFIG + REPORTS)
    (folder / "train.py").write_text(SAVES)
    return subprocess.Popen(
        [sys.executable, "-m", "automl", "sweep", "s.yaml", *LOCAL, *options, *PROGRAM],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trials(folder: Path) -> Sequence[Trial]:
    """The trials of the sweep as they are stored now."""
    with closing(Ledger.open(folder / ".automl", create=True)) as ledger:
        return [trial for one in ledger.sweeps() for trial in ledger.trials(one.name)]


def wait_for(folder: Path, state: TrialState) -> None:
    """Wait until a trial is in a state and has reported, so it has a checkpoint."""
    while not any(trial.state is state and trial.reports for trial in trials(folder)):
        time.sleep(0.05)
