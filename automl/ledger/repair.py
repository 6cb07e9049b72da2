"""Makes a sound ledger of everything that is sound in a damaged one and in its backups."""

import os
import tempfile
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
from .drafts import exclusive_draft
from .lock import FileLock
from .newest import NewestCommits
from .rebuild import rebuild
from .salvage import Rows, first_page, sound_rows
from .schema import METADATA
from .sealing import seal_all
from .sqlite_files import BESIDE, check_files
from .store_errors import BACKUP, existing_backups, translate_errors


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
    check_files(file, written=True)
    damage = check(store)
    if all(reason.startswith(f"{folder / BACKUP}{os.sep}") for reason in damage):
        return Repair(damage, [], None)
    with translate_errors(str(file)), ExitStack() as stack:
        _hold_all(folder, stack)
        draft = stack.enter_context(exclusive_draft(file))
        backups = existing_backups(file)
        current = _read(file, [*map(first_page, backups), _new_first_page()])
        sources = [current, *(_read(one, []) for one in backups)]
        sources.sort(key=_newest_event, reverse=True)
        kept, lost = rebuild(sources[0], _merged(sources), NewestCommits(file).read())
        if not kept["sweeps"]:
            raise StoreError(f"{file}: no sweep in it or in its backups is sound")
        _write(draft, kept)
        aside = _replace(file, draft)
    return Repair(damage, lost, aside)


def _hold_all(folder: Path, stack: ExitStack) -> None:
    """Hold the lock of every sweep.

    Raises:
        StoreError: somebody else holds one.
    """
    home = Folder(folder, "sweeps")
    for name in home.names():
        lock = FileLock(home / name, "controller.lock")
        stack.callback(lock.release)
        if not lock.acquire():
            raise StoreError(f"sweep {name!r} is in use: end it, then repair the store")


def _new_first_page() -> bytes:
    """The first page of a new ledger."""
    with tempfile.TemporaryDirectory() as folder:
        database.write_empty(Path(folder) / "new")
        return first_page(Path(folder) / "new")


def _read(source: Path, schemas: list[bytes]) -> Rows:
    try:
        return sound_rows(source, schemas)
    except (OSError, ValueError, AutomlError):
        return {}


def _newest_event(source: Rows) -> int:
    """Identity of the newest event. A ledger that has lost its log is older than a backup."""
    return max((number for (number,) in source.get("events", {})), default=0)


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
    name = f"damaged-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    aside = Folder(file.parent, BACKUP, name)
    aside.make()
    Folder(file.parent).copy(file.name, aside.path)
    flush(aside.path / file.name)
    beside = [file.with_name(f"{file.name}{end}") for end in (*BESIDE, "-newest")]
    for path in filter(Path.exists, beside):  # a log that stays would be applied to the new file
        path.rename(aside.path / path.name)
    flush(aside.path)
    draft.replace(file)
    flush(file.parent)
    return aside.path
