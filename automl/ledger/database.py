"""Opens and creates the database: a SQLite file in a folder, SQLite in memory, or a server.

A file is created whole or not at all: it is written under another name, then renamed. A file that
is empty, damaged or of a newer schema is refused, because it may hold somebody's results.
"""

import os
import re
import sqlite3
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import migrations, store_errors
from .drafts import exclusive_draft
from .engines import (
    IN_MEMORY,
    checked_version,
    make_tables,
    memory_engine,
    plain_engine,
    server_engine,
    version_row,
    write_empty,
)
from .head import HEAD
from .schema import VERSION
from .sqlite_files import BESIDE, check_files, connect, mode
from .store_errors import damaged, translate_errors

FILE_NAME: Final = "ledger.sqlite3"
_PASSWORD: Final = re.compile("password|passwd", re.IGNORECASE)


def locate(store: str | os.PathLike[str]) -> tuple[str, Path | None, Path | None]:
    """Where a store is.

    Returns:
        The URL of a server or of memory, "" for a file; the SQLite file, None for the others; the
        folder, None in memory.
    """
    text = os.fspath(store)
    if text == IN_MEMORY:
        return text, None, None
    if "\0" in text:
        raise StoreError(f"a store's path must have no NUL character, got {text!r}")
    if "://" not in text:
        file = Path(text).absolute() / FILE_NAME
        return "", file, file.parent
    url = _parsed(text)
    if url.get_backend_name() == "sqlite":
        if not url.database:
            raise StoreError(f"a SQLite store is a folder or sqlite:///FILE, got {text!r}")
        file = Path(url.database).absolute()
        return "", file, file.parent
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")  # older SQLAlchemy has another default
    return url.render_as_string(hide_password=False), None, Path(".automl").absolute()


def shown(url: str | os.PathLike[str]) -> str:
    """URL of a server without its password, and without its options, which may hold one."""
    return _parsed(os.fspath(url)).set(query={}).render_as_string(hide_password=True)


def refuse_password(store: str) -> None:
    """Refuse a URL with a password: it would be visible in `ps` and in the shell's history.

    Raises:
        StoreError: there is a password before the host or in the options, or the URL is malformed.
    """
    url = _parsed(store) if "://" in store else None
    if url and (url.password is not None or any(_PASSWORD.search(key) for key in url.query)):
        raise StoreError(
            "a store's URL must not hold a password, which everybody on this machine could read: "
            "put it into the environment variable PGPASSWORD or into ~/.pgpass"
        )


def _parsed(url: str) -> sa.URL:
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:  # its message may hold a password
        raise StoreError(
            "the store must be a folder or a database URL such as postgresql://host/name"
        ) from error


def open_engine(store: str | os.PathLike[str], *, create: bool, readonly: bool) -> sa.Engine:
    """Open a database and check its schema.

    Raises:
        StoreError: the store is missing, damaged, of a newer schema, or cannot be reached.
    """
    url, file, _ = locate(store)
    name = str(file) if file else shown(store)
    with translate_errors(name):
        if file is not None:
            return open_file(file, create=create, readonly=readonly)
        memory = url == IN_MEMORY
        engine = memory_engine() if memory else server_engine(url)
        if create or memory:
            make_tables(engine)
        if checked_version(engine, name) < VERSION:
            if readonly:
                raise StoreError(
                    f"{name}: its schema is older; the next `automl sweep` or `resume` in it "
                    "brings it up to date"
                )
            migrations.upgrade_server(engine, name)
        return engine


def check_pages(engine: sa.Engine, name: str) -> None:
    """Read all of a SQLite file; raise StoreError if a page is damaged."""
    with translate_errors(name), engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise damaged(name, str(found))


def is_ledger(store: str) -> bool:
    """Whether a store holds a ledger already.

    Raises:
        StoreError: the server does not answer.
    """
    url, file, _ = locate(store)
    if file is not None:
        return file.exists()
    with translate_errors(shown(store)):
        engine = server_engine(url)
        try:
            return version_row(engine) is not None
        finally:
            engine.dispose()


def open_file(file: Path, *, create: bool = False, readonly: bool) -> sa.Engine:
    """Open a SQLite file, which may come from a stranger, and check its schema.

    Raises:
        StoreError: as `open_engine`.
    """
    with translate_errors(str(file)):
        return _open_file(file, create=create, readonly=readonly)


def _open_file(file: Path, *, create: bool, readonly: bool) -> sa.Engine:
    facts = check_files(file, written=not readonly)
    if facts is None:
        if not create:
            raise StoreError(f"there is no store at {file}")
        _create_file(file)
    elif facts.st_size == 0:
        raise damaged(str(file), "it is empty, it holds no ledger")
    options = mode(file, readonly=readonly)
    engine = plain_engine(lambda: connect(file, options, timeout=store_errors.BUSY_SECONDS))
    version = checked_version(engine, str(file))
    if version == VERSION:
        return engine
    try:
        if not readonly:
            migrations.upgrade_file(file, version)
            return engine
        memory = memory_engine()
        migrations.in_memory(file, memory)
    except sqlite3.Error as error:
        raise StoreError(
            f"{file}: it has schema version {version} and could not be migrated: {error}"
        ) from error
    return memory


def _create_file(file: Path) -> None:
    """Make an empty ledger, unless there is one."""
    if not file.parent.exists():
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        with exclusive_draft(file) as draft:
            if file.exists():
                return  # another process was faster
            write_empty(draft)
            for end in (*BESIDE, HEAD):  # of a deleted ledger: SQLite would replay its log
                Folder(file.parent).unlink(f"{file.name}{end}")
            draft.replace(file)
            flush(file.parent)
    except sqlite3.Error as error:
        raise StoreError(f"{file}: the store cannot be made: {error}") from error
