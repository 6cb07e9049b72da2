"""A batch job of Slurm that starts Ray on its nodes and runs a sweep there."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from automl.errors import AutomlError, UsageError

GRACE_SECONDS: Final = 180  # before the time limit: trials are saved, and the job is requeued
START_SECONDS: Final = 300  # that nodes may take to join Ray
MOST_REQUEUES: Final = 50


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
        UsageError: a flag or the folder cannot be right.
    """
    folder, more = Path.cwd(), flag_lines(flags)
    for text in (str(folder), *more):
        if not text.isprintable():  # the script has a line for each
            raise UsageError(f"an option of a job has no line feeds, got {text!r:.200}")
    cores = f"--cpus-per-task={cpus_per_node}" if cpus_per_node else ""
    lines = [
        f"--job-name=automl-{name}",
        shlex.join([f"--chdir={folder}"]),
        f"--output={log_of(name)}",
        "--open-mode=append",
        "--ntasks-per-node=1",
        cores or "--exclusive",
        *(f"--{option}={value}" for option, value in options.items() if value),
        "--requeue",
        "--no-kill",
        f"--signal=B:USR1@{GRACE_SECONDS}",
        *more,
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
            files("automl.launch").joinpath("assets/slurm_job.sh").read_text("utf-8"),
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
