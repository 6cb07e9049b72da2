"""Verifies a whole store: SQLite's own check, the chain of every log, the head, the backups."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from automl.errors import StoreError, UsageError

from . import database
from .head import HEAD, Head, check_place
from .lease import read_leases
from .reader import Sweep, chunks, last_place, sweeps
from .records import BEGINNING, Place, decoded
from .schema import LEASES, RECORDS, SNAPSHOTS
from .snapshots import is_sound
from .sqlite_files import check_files
from .store_errors import (
    DamageError,
    damaged,
    existing_backups,
    read_with_retry,
    translate_decoding_errors,
    translate_errors,
)


def check(store: str | os.PathLike[str]) -> list[str]:
    """What is damaged in a store, a sentence each; nothing if every checksum holds.

    Raises:
        StoreError: there is no store, or its server cannot be reached.
    """
    _, file, _ = database.locate(store)
    if file is None:
        engine = database.open_engine(store, create=False, readonly=True)
        return _check(engine, database.shown(store), {})
    if check_files(file, written=False) is None:
        raise StoreError(f"there is no store at {file}")
    known = Head(file).read()
    found = _check_file(file, known)
    found += [
        f"{file}{HEAD}: the record of the newest commit of sweep {sweep} has another checksum"
        for sweep, place in known.items()
        if place is None
    ]
    for backup in existing_backups(file):
        found += _check_file(backup, {})
    return found


def _check_file(file: Path, known: Mapping[int, Place | None]) -> list[str]:
    try:
        engine = database.open_file(file, readonly=True)
        database.check_pages(engine, str(file))
    except StoreError as error:
        return [str(error)]
    return _check(engine, str(file), known)


def _check(engine: sa.Engine, name: str, known: Mapping[int, Place | None]) -> list[str]:
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    found = read_with_retry(engine, name, lambda connection: damage(connection, name, known))
    engine.dispose()
    return [f"{name}: {reason}" for reason in found]


def damage(connection: sa.Connection, name: str, known: Mapping[int, Place | None]) -> list[str]:
    """What is damaged in a database, after every row was read.

    Args:
        known: the newest record that each sweep must have, by its id.
    """
    found: list[str] = []

    def look(read: Any) -> Any:
        try:
            with translate_errors(name), translate_decoding_errors(name):
                return read()
        except StoreError as error:
            found.append(_reason(error))
        return None

    catalogue = look(lambda: sweeps(connection)) or []
    look(lambda: read_leases(connection))
    for sweep in catalogue:
        look(lambda: _check_log(connection, sweep, known.get(sweep.id)))  # noqa: B023
    ids = [sweep.id for sweep in catalogue]
    if not found:
        found += [f"sweep {sweep} is missing" for sweep in known.keys() - set(ids)]
        for table in (RECORDS, LEASES, SNAPSHOTS):
            query = sa.select(table.c.sweep).where(table.c.sweep.not_in(ids)).limit(1)
            if connection.scalars(query).all():
                found.append(f"rows of {table.name!r} belong to a sweep that is missing")
    return found


def _check_log(connection: sa.Connection, sweep: Sweep, known: Place | None) -> None:
    check_place(known, last_place(connection, sweep.id), sweep.name)
    for rows in chunks(connection, sweep, BEGINNING):
        decoded(rows)
    if not is_sound(connection, sweep.id):
        raise DamageError(f"the cached state of sweep {sweep.name!r} has another checksum")


def _reason(error: StoreError) -> str:
    cause = error.__cause__
    return str(cause) if isinstance(cause, DamageError) else str(error)


def back_up_to(store: str | os.PathLike[str], target: Path) -> int:
    """Copy a SQLite ledger, which may be in use, to a new file.

    Returns:
        The number of trials in the copy.

    Raises:
        UsageError: the store is a server, or the new file exists.
        StoreError: the ledger is damaged, or the copy cannot be written.
    """
    from .backup import copy, damage_of

    _, file, _ = database.locate(store)
    if file is None:
        raise UsageError(f"{database.shown(store)} is a server: copy it with pg_dump")
    if target.exists():
        raise UsageError(f"{target} exists already: name a new file")
    database.open_file(file, readonly=True).dispose()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    known = Head(file).read()
    try:
        with translate_errors(str(target)):
            copy(file, draft, readonly=True)
            if found := damage_of(draft, known):
                raise damaged(str(file), found[0])
            draft.rename(target)
    except sqlite3.Error as error:
        raise StoreError(f"{file} could not be copied to {target}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    with database.open_file(target, readonly=True).connect() as connection:
        return sum(lease["num_trials"] for lease in read_leases(connection).values())
