"""A batch job of Slurm that starts Ray on its nodes and runs a sweep there.

What the job asks on its nodes, the address for Ray's head and whether all nodes have joined:

python -m automl.workflows.slurm address
python -m automl.workflows.slurm wait HOST:PORT --nodes N [--seconds S]
"""

import argparse
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from automl.errors import AutomlError, UsageError

GRACE_SECONDS: Final = 180  # before the time limit: trials are saved, and the job is requeued
START_SECONDS: Final = 300  # that nodes may take to join Ray
MOST_REQUEUES: Final = 50
POLL_SECONDS: Final = 1.0


def flag_lines(flags: Sequence[str]) -> list[str]:
    """The lines of a batch script for options of sbatch, each with its value.

    Raises:
        UsageError: the first one is not an option.
    """
    if flags and not flags[0].startswith("-"):
        raise UsageError(
            f"options of sbatch come after --, such as -- --constraint=h100, got {flags[0]!r}"
        )
    lines: list[list[str]] = []
    for flag in flags:
        if flag.startswith("-"):
            lines.append([flag])
        else:
            lines[-1].append(flag)
    return [shlex.join(line) for line in lines]


def log_of(name: str) -> str:
    """The file with the messages of the job; Slurm replaces %j by its number."""
    return f"automl-{name}-%j.log"


def script(
    name: str,
    sweep: Sequence[str],
    program: Sequence[str],
    options: Mapping[str, Any],
    cpus_per_node: int | None,
    setup: Sequence[str],
    flags: Sequence[str],
) -> str:
    """The batch script, to read, to change, or to submit. The job runs in the present folder.

    Args:
        name: of the sweep. If the store has a sweep of this name, the job goes on with it.
        sweep: the arguments after `automl`, without the address of Ray and what is after `--`.
        program: from `--` on, as it was typed: a command that trials run.
        options: of sbatch by name; those that are 0, empty or None are left out.
        cpus_per_node: None for whole nodes, with all that they have.
        setup: lines of bash that run first on the first node; other nodes get its environment.
        flags: further options of sbatch.

    Raises:
        UsageError: a flag cannot be right.
    """
    cores = f"--cpus-per-task={cpus_per_node}" if cpus_per_node else ""
    lines = [
        f"--job-name=automl-{name}",
        shlex.join([f"--chdir={Path.cwd()}"]),
        f"--output={log_of(name)}",
        "--open-mode=append",
        "--ntasks-per-node=1",
        cores or "--exclusive",
        *(f"--{option}={value}" for option, value in options.items() if value),
        "--requeue",
        "--no-kill",
        f"--signal=B:USR1@{GRACE_SECONDS}",
        *flag_lines(flags),
    ]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in lines),
            "",
            *setup,
            f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
            f"sweep=({shlex.join(sweep)})",
            f"program=({shlex.join(program)})",
            f"step_options=({cores})",
            f"start_seconds={START_SECONDS} most_requeues={MOST_REQUEUES}",
            "",
            files("automl.workflows").joinpath("assets/slurm_job.sh").read_text("utf-8"),
        ]
    )


def submit(text: str) -> str:
    """Give a script to Slurm and return the number of the job.

    Raises:
        UsageError: there is no sbatch here.
        AutomlError: Slurm refuses the job; the message is its own.
    """
    if shutil.which("sbatch") is None:
        raise UsageError(
            "sbatch was not found: run this command on a login node of the cluster, or print "
            "the batch script with --dry-run"
        )
    # What this shell has of another job would change this one.
    own = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k == "SLURM_CONF"}
    done = subprocess.run(
        ["sbatch", "--parsable"], input=text, capture_output=True, text=True, env=own
    )
    if done.returncode:
        raise AutomlError(f"Slurm refuses the job: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


# on the nodes of the job


def free_port(host: str) -> int:
    """A TCP port of this machine that nobody listens at."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_for_nodes(address: str, num_nodes: int, seconds: float) -> int:
    """Wait until nodes have joined the Ray cluster, and return how many have.

    Args:
        address: HOST:PORT of Ray's head.
        seconds: to wait at most; then the nodes that are there must do.

    Raises:
        UsageError: Ray's head has not answered.
    """
    deadline = time.monotonic() + seconds
    while (problem := _connect(address)) is not None:
        if time.monotonic() > deadline:
            raise UsageError(
                f"Ray's head does not answer at {address} after {seconds:g} s ({problem}): "
                "its messages are above"
            )
        time.sleep(POLL_SECONDS)
    import ray

    try:
        while True:
            joined = sum(bool(node["Alive"]) for node in ray.nodes())
            if joined >= num_nodes or time.monotonic() > deadline:
                return joined
            time.sleep(POLL_SECONDS)
    finally:
        ray.shutdown()


def _connect(address: str) -> Exception | None:
    """Connect to Ray; why that fails. Its head listens before its own node has joined."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=POLL_SECONDS).close()
    except OSError as error:
        return error  # Ray would wait for minutes and then end this process
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        return error
    return None


def main() -> int:
    """Run as a program; the exit status is 0, or 2 if Ray's head is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("address")
    wait = verbs.add_parser("wait")
    wait.add_argument("address")
    wait.add_argument("--nodes", type=int, required=True)
    wait.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    try:
        if given.verb == "address":
            import ray

            host = ray.util.get_node_ip_address()
            print(f"{host}:{free_port(host)}")
        else:
            joined = wait_for_nodes(given.address, given.nodes, given.seconds)
            print(f"{joined} of {given.nodes} nodes have joined Ray at {given.address}", flush=True)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
