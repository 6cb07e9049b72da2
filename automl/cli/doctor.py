"""`automl doctor`: show what this machine can run."""

import click

from .common import STORE, emit, json_option


@click.command("doctor", short_help="Show what this machine can run.")
@click.option(
    "--store", default=STORE, show_default=True, metavar="URL", help="Store to check for writing."
)
@json_option
def command(store: str, as_json: bool) -> None:
    """Show hardware, packages and backends, and what precisions and strategies need.

    \b
    Example:
      automl doctor
    """
    from automl.ledger.database import refuse_password
    from automl.workflows.doctor import examine

    refuse_password(store)
    findings = examine(store)
    if as_json:
        emit(findings.to_dict())
        return
    from automl.report.console import console

    console().print(findings.render())
