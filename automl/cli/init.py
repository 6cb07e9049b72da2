"""`automl init`: write a first configuration."""

from pathlib import Path

import click

from automl.errors import UsageError

from .common import objective_option, output_option


@click.command("init", short_help="Write a first configuration.")
@click.argument("workload", required=False)
@objective_option
@output_option("NAME.yaml", "FILE", "File to write, '-' to print it.")
def command(workload: str | None, objective: str | None, output: str | None) -> None:
    """Write a commented configuration for a workload, or for a function of your own.

    \b
    Examples:
      automl init translation
      automl init --objective train.py:objective -o mine.yaml
    """
    from automl.config.template import for_objective, for_workload

    if (workload is None) is (objective is None):
        raise UsageError(
            "name a workload (see automl workloads), or a function with --objective FILE:NAME"
        )
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


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already; name another file with --output") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
