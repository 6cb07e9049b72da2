"""The command that a job runs, and how a job is given to its cluster.

The command begins a sweep or, after an interruption, goes on with it.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from automl.errors import AutomlError, UsageError

SUBMIT_SECONDS: Final = 120.0


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
        """The arguments after `automl` without the address of Ray, and what is after `--`."""
        given = [f"--{name}={value}" for name, value in self.options.items()]
        return [
            "sweep",
            self.config,
            *self.overrides,
            f"--name={self.name}",
            "--resume",
            f"--store={self.store}",
            *given,
        ]


def submit(
    command: Sequence[str],
    text: str,
    *,
    cluster: str,
    otherwise: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Give a job to its cluster on the standard input of a command, and return what that prints.

    Args:
        cluster: its name in messages; otherwise: what to do if the command is not installed.

    Raises:
        UsageError: the command is not installed.
        AutomlError: the cluster refuses the job; the message is its own.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]} was not found: {otherwise}")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            timeout=SUBMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise AutomlError(f"{command[0]} has not answered within {SUBMIT_SECONDS:g} s") from error
    if done.returncode:
        raise AutomlError(f"{cluster} refuses the job: {done.stderr.strip()}")
    return done.stdout.strip()
