"""The verbs that write a sweep elsewhere: its report, its best model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .common import emit, say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def report(ledger: Ledger, sweep: str, output: str | None) -> None:
    """Write the report of a sweep as an HTML file."""
    from automl.report.page import save
    from automl.report.record import Record

    path = Path(output or f"{sweep}.html")
    save(Record.read(ledger, sweep), path)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


def export(
    ledger: Ledger,
    sweep: str,
    output: str | None,
    trial: int | None,
    artifacts: str | None,
    as_json: bool,
) -> None:
    """Write the model of a trial as a folder."""
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
