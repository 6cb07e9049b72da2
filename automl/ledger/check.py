"""Verifies a whole store: every row, the log, the record of the newest commits, the backups."""

import os
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path

from automl.errors import StoreError, UsageError

from . import audit, database
from .backup import copy, damage_of
from .newest import Acknowledged, NewestCommits
from .reader import Reader
from .sqlite_files import check_files
from .store_errors import damaged, existing_backups, read_with_retry, translate_errors


def check(store: str | os.PathLike[str]) -> list[str]:
    """What is damaged in a store, a sentence each; nothing if every checksum holds.

    Raises:
        StoreError: there is no store, or its server cannot be reached.
    """
    _, file, _ = database.locate(store)
    if file is None:
        database.open_engine(store, create=False, readonly=True).dispose()
        return _check_database(store, database.shown(store), {})
    if check_files(file, written=False) is None:
        raise StoreError(f"there is no store at {file}")
    acknowledged = NewestCommits(file).read()
    found = _check_database(store, str(file), acknowledged)
    found += [
        f"{file}-newest: the record of the newest commit of sweep {sweep} has another checksum"
        for sweep, known in acknowledged.items()
        if not known.legible
    ]
    for backup in existing_backups(file):
        found += _check_database(f"sqlite:///{backup}", str(backup), {})
    return found


def _check_database(
    store: str | os.PathLike[str], name: str, acknowledged: Mapping[int, Acknowledged]
) -> list[str]:
    try:
        engine = database.open_engine(store, create=False, readonly=True)
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        else:
            database.check_pages(engine, name)
        found = read_with_retry(
            engine, name, lambda connection: audit.whole(connection, acknowledged)
        )
    except StoreError as error:
        return [str(error)]
    engine.dispose()
    return [f"{name}: {reason}" for reason in found]


def back_up_to(store: str | os.PathLike[str], target: Path) -> int:
    """Copy a SQLite ledger, which may be in use, to a new file.

    Returns:
        The number of trials in the copy.

    Raises:
        UsageError: the store is a server, or the new file exists.
        StoreError: the ledger is damaged, or the copy cannot be written.
    """
    _, file, _ = database.locate(store)
    if file is None:
        raise UsageError(f"{database.shown(store)} is a server: copy it with pg_dump")
    if target.exists():
        raise UsageError(f"{target} exists already: name a new file")
    database.open_engine(store, create=False, readonly=True).dispose()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    acknowledged = NewestCommits(file).read()
    try:
        with translate_errors(str(target)):
            copy(file, draft, readonly=True)
            if damage := damage_of(draft, acknowledged):
                raise damaged(str(file), damage[0])
            draft.rename(target)
    except sqlite3.Error as error:
        raise StoreError(f"{file} could not be copied to {target}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    ledger = Reader(database.open_engine(f"sqlite:///{target}", create=False, readonly=True), "")
    return sum(info.num_trials for info in ledger.sweeps())
