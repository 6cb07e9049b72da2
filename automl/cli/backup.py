"""`automl backup STORE FILE`: copy a ledger, also one in use."""

from pathlib import Path

import click

from .common import emit, json_option, say


@click.command("backup", short_help="Copy the ledger of a store to a file, also while it is used.")
@click.argument("store")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def command(store: str, file: Path, as_json: bool) -> None:
    """Copy everything that was committed to a SQLite file, and verify the copy.

    Do not use cp for a ledger in use: a part of it is in its log. FILE must not exist. To use a
    copy, put it into a folder of its own as ledger.sqlite3. For a server, use pg_dump.

    \b
    Example:
      automl backup .automl copy.sqlite3
    """
    from automl.ledger.check import back_up_to
    from automl.ledger.database import refuse_password

    refuse_password(store)
    num_trials = back_up_to(store, file)
    if as_json:
        emit({"file": str(file), "num_trials": num_trials})
    else:
        say(f"copied {num_trials} trials to {file}")
