"""Verifies a whole store: SQLite's own check, the chain of every log, the head, the backups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from automl.errors import StoreError

from . import snapshots
from .database import Database, locate, open_database, open_file
from .head import HEAD, Head, check_place
from .lease import read_leases
from .reader import Sweep, last_place, records_after, sweeps
from .records import BEGINNING, Place
from .sqlite_files import Connection, check_files
from .store_errors import DamageError, existing_backups, retry, translated


def check(store: str | os.PathLike[str]) -> list[str]:
    """What is damaged in a store, a sentence each; nothing if every checksum holds.

    Raises:
        StoreError: there is no store, or its server cannot be reached.
    """
    _, file, _ = locate(store)
    if file is None:
        with closing(open_database(store, create=False, readonly=True)) as database:
            return _damage_in(database, {})
    if check_files(file, written=False) is None:
        raise StoreError(f"there is no store at {file}")
    known = Head(file).read()
    found = damage_of(file, known)
    found += [
        f"{file}{HEAD}: the record of the newest commit of sweep {sweep} has another checksum"
        for sweep, place in known.items()
        if place is None
    ]
    for backup in existing_backups(file):
        found += damage_of(backup)
    return found


def damage_of(file: Path, known: Mapping[int, Place | None] | None = None) -> list[str]:
    """What is damaged in a SQLite file, a sentence each.

    Args:
        known: the newest records that must be in it, by id of sweep.
    """
    try:
        with closing(open_file(file, readonly=True)) as database:
            database.check_pages()
            return _damage_in(database, known or {})
    except StoreError as error:
        return [str(error)]


def _damage_in(database: Database, known: Mapping[int, Place | None]) -> list[str]:
    """What is damaged in a database, after every row was read."""

    def read() -> list[str]:
        found: list[str] = []
        catalogue: list[Sweep] = []
        with database.transaction() as connection:
            with _noted(found):
                catalogue += sweeps(connection)
            with _noted(found):
                read_leases(connection)
            for sweep in catalogue:
                with _noted(found):
                    _check_log(connection, sweep, known.get(sweep.id))
        missing = known.keys() - {sweep.id for sweep in catalogue}
        return found or [f"sweep {sweep} is missing" for sweep in sorted(missing)]

    with translated(database.name):
        return [f"{database.name}: {reason}" for reason in retry(read)]


def _check_log(connection: Connection, sweep: Sweep, known: Place | None) -> None:
    check_place(known, last_place(connection, sweep), sweep.name)
    for _ in records_after(connection, sweep, BEGINNING):
        pass
    if not snapshots.is_sound(connection, sweep.id):
        raise DamageError(f"the cached state of sweep {sweep.name!r} has another checksum")


@contextmanager
def _noted(found: list[str]) -> Iterator[None]:
    """Add what is damaged to a list, and go on."""
    try:
        with translated(""):
            yield
    except StoreError as error:
        found.append(str(error.__cause__ or error))
