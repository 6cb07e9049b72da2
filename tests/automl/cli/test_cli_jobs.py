"""`ray job submit -- automl sweep ...` on a real cluster of one machine."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.ledger import Ledger

ROOT = Path(__file__).parents[3]
RAY = [str(Path(sys.executable).parent / "ray")]
OBJECTIVE = "def objective(trial):\n    return {'loss': trial.params['x'] ** 2}\n"
CONFIG = """\
name: job
space: {x: {low: -1.0, high: 1.0, default: 0.9}}
goals: minimize loss
suggester: sobol
workers: 1
budget: {trials: 3}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell on the head node, with this project and a token."""
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    program = tmp_path / "bin" / "automl"  # what installing the project puts there
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m automl "$@"\n')
    program.chmod(0o755)
    scripts = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent)])
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
        "PYTHONPATH": str(ROOT),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "HOME": str(tmp_path),
    }


@pytest.fixture
def head(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of the jobs server of a new cluster, which ends with the test."""
    port, dashboard = free_port(), free_port()
    ports = [
        f"--port={port}",
        f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={free_port()}",
        f"--dashboard-agent-listen-port={free_port()}",  # by default one port for all heads
        "--num-cpus=2",
    ]
    options = [
        "--head",
        "--block",
        "--include-dashboard=true",
        "--node-ip-address=127.0.0.1",
        "--disable-usage-stats",
    ]
    folder = tempfile.mkdtemp(prefix="automl-")  # sockets lie in it, whose paths must be short
    log = (tmp_path / "head.log").open("w")
    process = subprocess.Popen(
        [*RAY, "start", *options, *ports, f"--temp-dir={folder}"],
        env=environment,
        stdout=log,
        stderr=log,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", dashboard), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "head.log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "head.log").read_text()
                time.sleep(0.3)
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        process.terminate()
        process.wait(timeout=60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_sweep_runs_as_a_ray_job(tmp_path: Path, environment: dict[str, str], head: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.py").write_text(OBJECTIVE)
    (work / "job.yaml").write_text(CONFIG)
    sweep = [
        "automl",
        "sweep",
        "job.yaml",
        "--objective",
        "mine.py:objective",
        "--ray-address",
        "auto",
    ]
    command = [*RAY, "job", "submit", "--address", head, "--working-dir", str(work), "--", *sweep]
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(
            [*command, "--store", str(tmp_path / "runs")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        # The head listens some seconds before its agent, which runs jobs, has registered.
        if "No available agent" not in done.stdout + done.stderr or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "job finished (its budget is used up): 3 trials" in done.stdout, (
        "the summary is in the job's log"
    )
    ledger = Ledger.open(tmp_path / "runs", readonly=True)
    snapshot = ledger.snapshot("job")
    ledger.close()
    assert snapshot.state == "finished"
    assert [str(trial.state) for trial in snapshot.trials] == ["completed"] * 3
