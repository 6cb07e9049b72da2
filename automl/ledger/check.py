"""Verifies a whole store: SQLite's own check, the chain of every log, the head, the backups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from automl.errors import StoreError

from . import database
from .damage import damage_in
from .head import HEAD, Head
from .records import Place
from .sqlite_files import check_files
from .store_errors import (
    existing_backups,
    read_with_retry,
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
    found = read_with_retry(engine, name, lambda connection: damage_in(connection, name, known))
    engine.dispose()
    return [f"{name}: {reason}" for reason in found]
