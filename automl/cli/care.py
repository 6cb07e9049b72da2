"""The verbs that care for a store: delete, check, backup, repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automl.errors import AutomlError

from .common import emit, say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def delete(ledger: Ledger, sweep: str, artifacts: str | None, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs."""
    from automl.workflows.artifacts import location_to_delete

    elsewhere = location_to_delete(ledger.spec(sweep), artifacts)
    if not yes:
        question = f"delete {sweep} with {len(ledger.trials(sweep))} trials and their files?"
        click.confirm(question, abort=True, err=True)
    ledger.delete(sweep)
    if elsewhere is not None and artifacts is not None:
        elsewhere.remove()
    say(f"deleted {sweep}")
    if elsewhere is not None and artifacts is None:
        say(f"its files at {elsewhere.location} stay: remove them there", err=True)


def check(store: str, as_json: bool) -> None:
    """Verify every checksum of a store and of its backups."""
    from automl.ledger.check import check
    from automl.ledger.database import shown

    damage = check(store)
    name = shown(store) if "://" in store else store
    if as_json:
        emit({"store": name, "sound": not damage, "damage": damage})
    else:
        say("\n".join(damage) or f"{name}: every checksum holds")
    if damage:
        raise AutomlError(f"{name} is damaged: see `automl repair --help`")


def backup(store: str, file: Path, as_json: bool) -> None:
    """Copy everything that was committed to a SQLite file."""
    from automl.ledger.backup import back_up_to

    count = back_up_to(store, file)
    if as_json:
        return emit({"file": str(file), "num_trials": count})
    return say(f"copied {count} trials to {file}")


def repair(store: str, as_json: bool) -> None:
    """Keep everything that is sound in a damaged store."""
    from automl.ledger.repair import repair

    done = repair(store)
    if as_json:
        aside = str(done.aside) if done.aside else None
        emit({"store": store, "damage": done.damage, "lost": done.lost, "aside": aside})
    elif done.aside is None:
        say("\n".join([f"{store}: the ledger is sound", *done.damage]))
    else:
        say("\n".join(done.damage))
        say(f"repaired; the damaged files are in {done.aside}")
        say("\n".join(f"lost: {one}" for one in done.lost) or "nothing was lost")
