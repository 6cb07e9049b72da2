"""A batch job of Slurm that starts Ray on its nodes and runs a sweep there."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from automl.errors import AutomlError, UsageError


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


@dataclass(frozen=True)
class SweepCommand:
    """The arguments of `automl sweep`, as a job passes them.

    Args:
        config: path of the configuration; overrides: `KEY=VALUE` texts.
        name: of the sweep. If the store has a sweep of this name, the job goes on with it.
        store: folder or URL.
        options: further options by name without dashes, such as `{"trials": "20"}`.
        program: from `--` on, as it was typed: a command that trials run.
    """

    config: str
    name: str
    store: str
    overrides: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """The arguments after `automl`, without the address of Ray and what is after `--`."""
        given = {"name": self.name, "store": self.store, **self.options}
        options = [f"--{name}={value}" for name, value in given.items()]
        return ["sweep", self.config, *self.overrides, "--resume", *options]


@dataclass(frozen=True)
class SlurmJob:
    """What a batch job asks Slurm for, and the sweep that it runs.

    Args:
        sweep: what it runs.
        folder: where it runs, with the store if that is a relative path; all nodes see it.
        nodes: how many.
        time: limit of one run of the job, as sbatch takes it; "" for that of the partition.
        gpus_per_node: 0 for none.
        cpus_per_node: None for whole nodes, with all that they have.
        partition, account: as sbatch takes them; "" for the usual ones.
        grace: seconds before the time limit at which trials are saved and the job is requeued.
        most_requeues: how often the job requeues itself.
        start_seconds: that nodes may take to join Ray.
        setup: lines of bash that run first on the first node; other nodes get its environment.
        flags: further options of sbatch.
        python: of the environment in which automl is installed, on every node.

    Raises:
        UsageError: a number or a flag cannot be right.
    """

    sweep: SweepCommand
    folder: Path
    nodes: int = 1
    time: str = ""
    gpus_per_node: int = 0
    cpus_per_node: int | None = None
    partition: str = ""
    account: str = ""
    grace: int = 180
    most_requeues: int = 50
    start_seconds: int = 300
    setup: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    python: Path = Path(sys.executable)

    def __post_init__(self) -> None:
        for text in (str(self.folder), self.partition, self.account, *flag_lines(self.flags)):
            if not text.isprintable():  # the script has a line for each
                raise UsageError(f"an option of a job has no line feeds, got {text!r:.200}")

    @property
    def log(self) -> str:
        """The file with the messages of the job; Slurm replaces %j by its number."""
        return f"automl-{self.sweep.name}-%j.log"

    def script(self) -> str:
        """The batch script, to read, to change, or to submit."""
        options = [
            f"--job-name=automl-{self.sweep.name}",
            shlex.join([f"--chdir={self.folder}"]),
            f"--output={self.log}",
            "--open-mode=append",
            f"--nodes={self.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.cpus_per_node}" if self.cpus_per_node else "--exclusive",
            f"--gpus-per-node={self.gpus_per_node}" if self.gpus_per_node else "",
            f"--time={self.time}" if self.time else "",
            f"--partition={self.partition}" if self.partition else "",
            f"--account={self.account}" if self.account else "",
            "--requeue",
            "--no-kill",
            f"--signal=B:USR1@{self.grace}",
            *flag_lines(self.flags),
        ]
        step = [f"--cpus-per-task={self.cpus_per_node}"] if self.cpus_per_node else []
        return "\n".join(
            [
                "#!/bin/bash",
                *(f"#SBATCH {option}" for option in options if option),
                "",
                *self.setup,
                f"export PATH={shlex.quote(str(self.python.parent))}:$PATH",
                f"sweep=({shlex.join(self.sweep.arguments())})",
                f"program=({shlex.join(self.sweep.program)})",
                f"step_options=({shlex.join(step)})",
                f"start_seconds={self.start_seconds} most_requeues={self.most_requeues}",
                "",
                files("automl.launch").joinpath("assets/slurm_job.sh").read_text("utf-8"),
            ]
        )

    def submit(self) -> str:
        """Give the script to Slurm and return the number of the job.

        Raises:
            UsageError: there is no sbatch here.
            AutomlError: Slurm refuses the job; the message is its own.
        """
        # What this shell has of another job would change this one.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        kept = {k: v for k, v in os.environ.items() if k == "SLURM_CONF"}
        if shutil.which("sbatch") is None:
            raise UsageError(
                "sbatch was not found: run this command on a login node of the cluster, or print "
                "the batch script with --dry-run"
            )
        done = subprocess.run(
            ["sbatch", "--parsable"],
            input=self.script(),
            capture_output=True,
            text=True,
            env=inherited | kept,
        )
        if done.returncode:
            raise AutomlError(f"Slurm refuses the job: {done.stderr.strip()}")
        return done.stdout.strip().partition(";")[0]
