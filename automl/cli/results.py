"""The verbs that show a sweep elsewhere: its report, its best model, the studio."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .common import (
    STORE,
    emit,
    json_option,
    newest_argument,
    opened,
    output_option,
    reads_store,
    say,
    setting,
    store_option,
    whole,
)

if TYPE_CHECKING:
    from automl.ledger import Ledger


NICE: Final = 5  # controllers and trials on this machine go first


@click.command()
@newest_argument
@output_option("SWEEP.html")
@reads_store
def report(ledger: Ledger, sweep: str, output: str | None) -> None:
    """Write the report of a sweep as one HTML file that works offline, also while it runs.

    \b
    Examples:
      automl report nmt
      automl report nmt -o /tmp/nmt.html
    """
    from automl.report.page import save
    from automl.report.record import Record

    path = Path(output or f"{sweep}.html")
    save(Record.read(ledger, sweep), path)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


@click.command()
@newest_argument
@output_option("SWEEP-model", "DIR", "A new folder.")
@click.option("--trial", type=int, metavar="N", help="Number of a trial.  [default: the best one]")
@setting("artifacts")
@reads_store
@json_option
def export(
    ledger: Ledger,
    sweep: str,
    output: str | None,
    trial: int | None,
    artifacts: str | None,
    as_json: bool,
) -> None:
    """Write the model of the best trial: weights, configuration and a model card.

    The weights of a function or a program are the files that it has written into the folders of the
    trial, and what `trial.save` has saved.

    \b
    Examples:
      automl export nmt
      automl export nmt --trial 7 -o models/seven
      automl export nmt --artifacts s3://bucket/sweeps      fetch it from there, keep a copy there
    """
    from automl.workflows.export import chosen, export
    from workers.export import NoCheckpoint

    target = Path(output or f"{sweep}-model")
    which = chosen(ledger, sweep, trial)
    try:
        files = export(ledger, sweep, which, target, artifacts)
    except NoCheckpoint:
        best = ledger.snapshot(sweep).best
        if trial is not None or best is None or best.number == which.number:
            raise
        lost = f"trial {which.number}, which is recommended, has no checkpoint any more"
        say(f"{lost}: trial {best.number}, the best single run, is exported", err=True)
        which, files = best, export(ledger, sweep, best, target, artifacts)
    show_export(which.number, target, files, as_json)


def show_export(number: int, target: Path, files: dict[str, str], as_json: bool) -> None:
    """Print the files of an exported trial."""
    if as_json:
        return emit({"trial": number, "folder": str(target), "files": files})
    width = max(map(len, files))
    lines = [f"  {name:<{width}}  {description}" for name, description in files.items()]
    return say("\n".join([f"trial {number} is in {target}:", *lines]))


@click.command()
@store_option
@click.option("--port", type=whole(0, 65535), default=0, help="Port to listen on.  [default: any]")
def studio(store: str, port: int) -> None:
    """Serve every sweep of a store as a web application. Ctrl-C ends it, not the sweeps.

    It prints one address, which holds the token of this studio. Only this machine can reach it.
    From another one: ssh -L PORT:127.0.0.1:PORT HOST.

    \b
    Examples:
      automl studio
      automl studio --store postgresql://host/runs --port 8800
    """
    from automl.studio.server import StudioServer

    with opened(store, create=store == STORE) as ledger:  # one may open it before the first sweep
        server = StudioServer(ledger, port, "" if store == STORE else store)
        say(server.address())
        say("Ctrl-C ends the studio, not the sweeps", err=True)
        if hasattr(os, "nice"):
            os.nice(NICE)
        server.run()
