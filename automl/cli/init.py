"""`automl init`: write a first configuration."""

from pathlib import Path

import click

from automl.errors import UsageError

from .program import Program


def init(
    workload: str | None, objective: str | None, output: str | None, program: Program | None
) -> None:
    """Write a commented configuration for a workload, a function, or a command."""
    from automl.config.template import for_objective, for_workload

    if [workload, objective, program].count(None) != 2:
        raise UsageError(
            "name a workload (see automl workloads), a function with --objective FILE:NAME, "
            "or a command after --"
        )
    if program is not None:
        _for_command(program, output)
        return
    stem = workload or Path((objective or "").rpartition(":")[0]).stem
    path = Path(output if output and output != "-" else f"{stem}.yaml")
    shown = click.format_filename(path)  # a name that is no UTF-8 cannot be in the file
    text = for_workload(workload, shown) if workload else for_objective(objective or "", shown)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write_new(path, text)
    option = f" --objective {objective}" if objective else ""
    click.echo(f"wrote {shown}; check it, then run: automl sweep {shown}{option}")


def _for_command(program: Program, output: str | None) -> None:
    from automl.config.command_template import file_of, for_command

    path = Path(output if output and output != "-" else file_of(program.arguments))
    shown = click.format_filename(path)
    text, line = for_command(program.arguments, shown)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write_new(path, text)
    click.echo(f"wrote {shown}; check it, then run: automl sweep {shown} -- {line}")


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already; name another file with --output") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
