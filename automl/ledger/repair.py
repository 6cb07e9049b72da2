"""Makes a sound ledger of everything that is sound in a damaged one and in its backups."""

import os
import shutil
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from automl.errors import AutomlError, StoreError, UsageError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import database
from .backup import damage_of
from .check import check
from .lock import FileLock
from .rebuild import rebuild
from .salvage import Rows, sound_rows
from .schema import METADATA
from .sealing import seal_all
from .store_errors import existing_backups, translate_errors


@dataclass(frozen=True)
class Repair:
    """What a repair has done.

    Args:
        damage: what was damaged; lost: what is in no file; aside: the folder of the damaged files,
            None if nothing was damaged.
    """

    damage: list[str]
    lost: list[str]
    aside: Path | None


def repair(store: str | os.PathLike[str]) -> Repair:
    """Replace a damaged ledger by one with every sound row of it, of its log and of its backups.

    Raises:
        UsageError: the store is a server, which has backups of its own.
        StoreError: there is no store, a sweep is running in it, or nothing in it is sound.
    """
    _, file, folder = database.locate(store)
    if file is None or folder is None:
        raise UsageError("a server has no files to repair: restore a backup of the server")
    damage = check(store)
    if not any(not reason.startswith(str(folder / "backup")) for reason in damage):
        return Repair(damage, [], None)
    with ExitStack() as stack, translate_errors(str(file)):
        _hold_all(folder, stack)
        sources = [file, *existing_backups(file)]
        kept, lost = rebuild(_merged([_read(source) for source in sources]))
        if not kept["sweeps"]:
            raise StoreError(f"{file}: no sweep in it or in its backups is sound")
        draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            _write(draft, kept)
            aside = _replace(file, draft)
        finally:
            draft.unlink(missing_ok=True)
    return Repair(damage, lost, aside)


def _hold_all(folder: Path, stack: ExitStack) -> None:
    """Hold the lock of every sweep and of migrations.

    Raises:
        StoreError: somebody else holds one.
    """
    home = Folder(folder, "sweeps")
    places = [(home / name, "controller.lock") for name in home.names()]
    for place, name in [(Folder(folder), ".migration.lock"), *places]:
        lock = FileLock(place, name)
        stack.callback(lock.release)
        if not lock.acquire():
            raise StoreError(f"{place.path} is in use: end its sweep, then repair the store")


def _read(source: Path) -> Rows:
    try:
        return sound_rows(source)
    except (OSError, ValueError, AutomlError):
        return {}


def _merged(sources: list[Rows]) -> Rows:
    """Every row of some sources; the first source that has a row wins."""
    found: Rows = {}
    for source in sources:
        for table, rows in source.items():
            found[table] = rows | found.get(table, {})
    return found


def _write(draft: Path, kept: Rows) -> None:
    database.write_empty(draft)
    engine = sa.create_engine(f"sqlite:///{draft}", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for table in METADATA.sorted_tables:
            if rows := list(kept.get(table.name, {}).values()):
                connection.execute(table.insert(), rows)
        seal_all(connection)
    if damage := damage_of(draft, {}):
        raise StoreError(f"the repaired ledger is not sound: {damage[0]}")
    flush(draft)


def _replace(file: Path, draft: Path) -> Path:
    """Put a new file in the place of a damaged one; the folder with the damaged files."""
    aside = Folder(file.parent, "backup", f"damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    aside.make()
    damaged = [file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm", "-newest")]
    for path in filter(Path.exists, damaged):
        shutil.copyfile(path, aside.path / path.name)
        flush(aside.path / path.name)
    for path in damaged[1:]:  # a log that stays would be applied to the new file
        path.unlink(missing_ok=True)
    draft.replace(file)
    flush(file.parent)
    return aside.path
