"""`automl init`: write a first configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automl.errors import UsageError

from .common import objective_option, output_option, say
from .program import Program, ProgramVerb

if TYPE_CHECKING:
    from workers.command.printed_metrics import PrintedMetric


@click.command(cls=ProgramVerb, short_help="Write a first configuration.")
@click.argument("workload", required=False)
@objective_option
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="The YAML file of `wandb sweep`. It is read as data: nothing in it is run.",
)
@output_option("NAME.yaml", help="File to write, '-' to print it.")
@click.option("--goal", metavar="METRIC", help="Of those that the command prints: which counts.")
@click.option("--no-run", is_flag=True, help="Do not run the command; guess the goal.")
def init(
    workload: str | None,
    objective: str | None,
    output: str | None,
    program: Program | None,
    goal: str | None,
    no_run: bool,
    source: str | None,
) -> None:
    """Write a commented configuration for a workload, a function of your own, or a COMMAND.

    Or make one of a sweep of Weights & Biases, and say what could not be carried over.

    The numbers among the options of a command become parameters, with a range around each. The
    command is run for at most 20 seconds, to see which metrics it prints.

    \b
    Examples:
      automl init translation
      automl init --objective train.py:objective -o mine.yaml
      automl init -- python train.py --lr 0.001 --width 64
      automl init --from sweep.yaml -o mine.yaml
    """
    from automl.config.template import for_objective, for_workload

    if [workload, objective, program, source].count(None) != 3:
        raise UsageError(
            "name a workload (see automl workloads), a function with --objective FILE:NAME, "
            "a command after --, or a sweep of Weights & Biases with --from"
        )
    if program is not None:
        _for_command(program, output, goal, run=not no_run)
        return
    if goal is not None or no_run:
        raise UsageError("--goal and --no-run are for a command after --")
    default = workload or Path((objective or "").rpartition(":")[0]).stem
    default = default if source is None else f"{Path(source).stem}.automl"
    path = Path(output if output and output != "-" else f"{default}.yaml")
    shown = click.format_filename(path)  # a name that is no UTF-8 cannot be in the file
    option = f" --objective {objective}" if objective else ""
    if source is not None:
        from automl.config.wandb_sweep import read_wandb

        found = read_wandb(Path(source))
        text, option = found.text(click.format_filename(source), shown), f" -- {found.command}"
        for note in found.notes:
            say(f"note: {note}", err=True)
    else:
        text = for_workload(workload, shown) if workload else for_objective(objective or "", shown)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write_new(path, text)
    click.echo(f"wrote {shown}; check it, then run: automl sweep {shown}{option}")


def _for_command(program: Program, output: str | None, goal: str | None, *, run: bool) -> None:
    from automl.config.command_template import file_of, for_command

    path = Path(output if output and output != "-" else file_of(program.arguments))
    shown = click.format_filename(path)
    if output != "-":
        _check_new(path)
    for_command(program.arguments, shown)  # refuses a command without numbers before it is run
    metric = chosen_metric(printed_by(program), goal) if run else None
    text, line = for_command(program.arguments, shown, metric)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write_new(path, text)
    sweep = f"automl sweep {shown} -- {line}"
    click.echo(f"wrote {shown}; check it, then run: {sweep}")


def printed_by(program: Program) -> list[PrintedMetric]:
    """The metrics that a command prints or reports; says what else is to know."""
    from workers.command.printed_metrics import printed_metrics, reported_metrics

    from .dry_run import SECONDS, dry_run

    say(f"runs the command for at most {SECONDS:.0f} s, to see what it prints", err=True)
    arguments = program.arguments

    def enough(lines: list[str]) -> bool:
        return any(metric.of_validation for metric in printed_metrics(lines))

    try:
        seen = dry_run(arguments, enough)
    except (OSError, ValueError) as error:
        raise UsageError(f"the command cannot be started: {error}") from error
    found = reported_metrics(seen.reported) or printed_metrics(seen.lines)
    if seen.end is not None and seen.end.status != 0:
        say(f"the command {seen.end}: {' | '.join(seen.lines[-3:])}", err=True)
    elif not found:
        shown = " | ".join(seen.lines[-3:]) or "nothing"
        say(
            f"no metric is known in what it printed: {shown}; if it writes a CSV of metrics, "
            "write `reports: {file: metrics.csv}` (docs/guides/script.md)",
            err=True,
        )
    return found


def chosen_metric(found: list[PrintedMetric], goal: str | None) -> PrintedMetric | None:
    """The metric to tune by; None if none is known.

    Raises:
        UsageError: it is not clear which, and there is no terminal to ask at.
    """
    names = [metric.name for metric in found]
    if goal is not None:
        name = goal.split()[-1]
        if name not in names:
            raise UsageError(f"--goal: the command prints no {name!r}; it prints {names or 'none'}")
        return found[names.index(name)]
    if not found:
        say("wrote a guess: adapt `goals` and `reports`", err=True)
        return None
    first, others = found[0], ", ".join(names[1:])
    if first.of_validation or not others:
        also = f" (--goal for another: {others})" if others else ""
        say(f"the goal is to {first.goal}{also}", err=True)
        return first
    unsure = f"none of the metrics is of validation data: {', '.join(names)}"
    if not sys.stdin.isatty():
        raise UsageError(
            f"{unsure}. Name one: --goal {names[0]}. If it is tuned by test data, its value is too "
            "good: keep some data apart, or report it at the end only"
        )
    say(unsure, err=True)
    name = click.prompt("Tune by", type=click.Choice(names), default=names[0], err=True)
    return found[names.index(name)]


def _check_new(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} exists already; name another file with --output")


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already; name another file with --output") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
