"""`automl init`: write a first configuration."""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from automl.config.template import file_of, for_command, read_wandb
from automl.errors import UsageError
from workers.command.printed_metrics import PrintedMetric, printed_metrics

from .common import output_option, say
from .program import Program, ProgramVerb

SECONDS: Final = 20.0  # that a command is run, to see what it prints
LOOK_SECONDS: Final = 0.2  # between two looks at what it has printed
MAX_CHARACTERS: Final = 1 << 20


@click.command(cls=ProgramVerb)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="The YAML file of `wandb sweep`. It is read as data: nothing in it is run.",
)
@click.option("--no-run", is_flag=True, help="Do not run the command; guess the goal.")
@output_option("NAME.yaml", help="File to write, '-' to print it.")
def init(
    output: str | None,
    program: Program | None,
    source: str | None,
    no_run: bool,
) -> None:
    """Write a commented configuration for a COMMAND.

    Or make one of a sweep of Weights & Biases, and say what could not be carried over.

    The numbers among the options of a command become parameters, with a range around each. The
    command is run for at most 20 seconds, to see which metrics it prints.

    \b
    Examples:
      automl init -- python train.py --lr 0.001 --width 64
      automl init --from sweep.yaml -o mine.yaml
    """
    if (program is None) is (source is None):
        raise UsageError("give a command after --, or a sweep of Weights & Biases with --from")
    default = f"{Path(source).stem}.automl.yaml" if source else ""
    if program is not None:
        default = file_of(program.arguments)
    path = Path(output if output and output != "-" else default)
    shown = click.format_filename(path)  # a name that is no UTF-8 cannot be in the file
    if output != "-" and path.exists():
        raise UsageError(f"{path} exists already; name another file with --output")
    if program is not None:
        for_command(program.arguments, shown)  # refuses one without numbers before it is run
        metric = None if no_run else next(iter(printed_by(program)), None)
        goal = f"the goal is to {metric.goal}" if metric else "wrote a guess"
        say(f"{goal}: adapt `goals` and `reports` if another metric counts", err=True)
        text, line = for_command(program.arguments, shown, metric)
    elif source is not None:
        found = read_wandb(Path(source))
        text, line = found.text(click.format_filename(source), shown), found.command
        for note in found.notes:
            say(f"note: {note}", err=True)
    if output == "-":
        click.echo(text, nl=False)
        return
    path.write_text(text, encoding="utf-8")
    click.echo(f"wrote {shown}; check it, then run: automl sweep {shown} -- {line}")


def printed_by(program: Program) -> list[PrintedMetric]:
    """The metrics that a command prints, the best to tune by first.

    Runs it where automl was typed until it ends, has printed one of validation, or time is up.
    """
    say(f"runs the command for at most {SECONDS:.0f} s, to see what it prints", err=True)
    with tempfile.TemporaryDirectory() as folder:
        places = {name: str(Path(folder, name)) for name in ("PARAMS", "REPORTS", "STOP")}
        Path(places["PARAMS"]).write_text("{}")
        facts = {"TRIAL": "0", "SEED": "0", "CHECKPOINT_DIR": folder, "TRIAL_DIR": folder}
        environment = {f"AUTOML_{name}": value for name, value in {**places, **facts}.items()}
        printed = Path(folder, "printed")
        with printed.open("wb") as output:
            process = subprocess.Popen(
                program.arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        deadline = time.monotonic() + SECONDS
        goes_on, found = True, list[PrintedMetric]()
        try:
            while goes_on and not any(metric.of_validation for metric in found):
                time.sleep(LOOK_SECONDS)
                goes_on = process.poll() is None and time.monotonic() < deadline
                with printed.open(errors="replace") as file:
                    lines = file.read(MAX_CHARACTERS).splitlines()
                found = printed_metrics(lines)
        finally:
            status = process.poll()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status or not found:
        ended = f"ended with exit status {status}" if status else "printed no metric that is known"
        say(f"the command {ended}: {' | '.join(lines[-3:]) or 'nothing'}", err=True)
    return found
