"""What a job asks on its nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from automl.errors import UsageError
from automl.launch.nodes import free_port, wait_for_nodes


def test_a_head_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(UsageError, match="Ray's head does not answer"):
        wait_for_nodes(f"127.0.0.1:{free_port('127.0.0.1')}", 1, 0.0)


def test_the_program_waits_for_nodes_and_goes_on_with_fewer() -> None:
    """A Ray head of one node, of which two are wanted."""
    port = free_port("127.0.0.1")
    folder = tempfile.mkdtemp(prefix="nodes-", dir="/tmp")  # Ray's sockets need a short path
    environment = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": folder,
    }
    python = [sys.executable, "-m"]
    log = Path(folder, "head.log").open("w")  # noqa: SIM115
    head = subprocess.Popen(
        [
            *(*python, "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"),
            *("--node-ip-address=127.0.0.1", "--num-cpus=1", "--include-dashboard=false"),
        ],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait = [*python, "automl.launch.nodes", "wait", f"127.0.0.1:{port}", "--nodes"]
        done = subprocess.run(
            [*wait, "1", "--seconds", "200"], env=environment, capture_output=True, text=True
        )
        assert f"1 of 1 nodes have joined Ray at 127.0.0.1:{port}" in done.stdout, (
            done.stderr + Path(folder, "head.log").read_text()
        )
        done = subprocess.run(
            [*wait, "2", "--seconds", "1"], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0
        assert "1 of 2 nodes" in done.stdout
    finally:
        head.terminate()
        head.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
