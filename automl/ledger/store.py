"""Opening and creating the database: a SQLite file in the store's folder, SQLite in memory, or a server's URL.

A file is created whole or not at all (written under another name, then linked), and one that is empty, damaged or
of a newer schema is refused: nothing is ever created over what may be somebody's results.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from automl.errors import StoreError

from .schema import META, METADATA, VERSION

IN_MEMORY: Final = "sqlite://"
FILE_NAME: Final = "ledger.sqlite3"
BUSY_SECONDS: Final = 30.0


def locate(store: str | os.PathLike[str]) -> tuple[str, Path | None, Path | None]:
    """A store's URL, the SQLite file (None for a server or memory) and its folder (None in memory)."""
    text = os.fspath(store)
    if text == IN_MEMORY:
        return text, None, None
    if "://" not in text:
        file = Path(text).absolute() / FILE_NAME
        return f"sqlite:///{file}", file, file.parent
    url = sa.make_url(text)
    if url.get_backend_name() == "sqlite":
        if not url.database:
            raise StoreError(f"a SQLite store is a folder or sqlite:///FILE, got {text!r}")
        file = Path(url.database).absolute()
        return f"sqlite:///{file}", file, file.parent
    return text, None, Path(".automl").absolute()


def open_engine(store: str | os.PathLike[str], *, create: bool, readonly: bool) -> sa.Engine:
    """A checked engine.

    Raises:
        StoreError: there is no such store, or it is damaged, of a newer schema, or cannot be reached.
    """
    try:
        url, file, _ = locate(store)
        name = str(file) if file else sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError as error:
        raise StoreError("the store must be a folder or a database URL such as postgresql://host/name") from error
    with translated(name):
        if file is not None:
            return _open_file(file, create=create, readonly=readonly)
        memory = url == IN_MEMORY
        engine = _sqlite_engine(url, StaticPool) if memory else _server_engine(url)
        if create or memory:
            _create_tables(engine)
        check_version(engine, name)
        return engine


def check_version(engine: sa.Engine, name: str) -> None:
    """Raise StoreError where the schema is missing or newer than this program knows."""
    with engine.connect() as connection:
        try:
            text = connection.scalar(sa.select(META.c.value).where(META.c.key == "schema_version"))
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            if "no such table" not in str(error) and "does not exist" not in str(error):
                raise
            text = None
    if text is None:
        raise StoreError(f"{name} is no ledger of automl: it has no schema version. It was left as it is")
    if int(text) > VERSION:
        raise StoreError(f"{name} has schema version {text}, this automl knows up to {VERSION}: use a newer automl")


def check_pages(engine: sa.Engine, name: str) -> None:
    """Raise StoreError where a page of a SQLite file is damaged; reads all of it."""
    with translated(name), engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise StoreError(f"{name}: the file is damaged ({found}). It was left as it is")


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what the database or the file system says into a StoreError that names the store."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"{name}: {_explain(str(getattr(error, 'orig', None) or error))}") from error
    except ModuleNotFoundError as error:
        raise StoreError(f"{name}: this kind of store needs the package {error.name!r}") from error
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror or error}") from error


def _explain(message: str) -> str:
    if "locked" in message or "busy" in message:
        return f"locked by another process for more than {BUSY_SECONDS:g} s"
    if "malformed" in message or "not a database" in message:
        return f"the file is damaged ({message}). It was left as it is"
    return message.strip()


def _open_file(file: Path, *, create: bool, readonly: bool) -> sa.Engine:
    if not file.exists():
        if not create:
            raise StoreError(f"there is no store at {file}")
        _create_file(file)
    if file.stat().st_size == 0:
        raise StoreError(f"{file} is empty, it holds no ledger. It was left as it is; move it away to begin anew")
    engine = _sqlite_engine(f"sqlite:///file:{_quote(file)}?{_mode(file, readonly)}uri=true", NullPool)
    check_version(engine, str(file))
    return engine


def _mode(file: Path, readonly: bool) -> str:
    """A folder that cannot be written to has no room for SQLite's side files, so its file cannot change either."""
    if os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
        return "mode=rw&" if not readonly else "mode=ro&"
    return "mode=ro&immutable=1&"


def _quote(file: Path) -> str:
    from urllib.parse import quote

    return quote(str(file))


def _create_file(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
        engine = _sqlite_engine(f"sqlite:///{draft}", NullPool)
        _create_tables(engine)
        engine.dispose()
        os.link(draft, file)
    except FileExistsError:
        pass  # another process was faster; its file is as good
    finally:
        for left in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            left.unlink(missing_ok=True)


def _create_tables(engine: sa.Engine) -> None:
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        METADATA.create_all(connection)
        if connection.scalar(sa.select(META.c.value).where(META.c.key == "schema_version")) is None:
            connection.execute(META.insert(), {"key": "schema_version", "value": str(VERSION)})


def _server_engine(url: str) -> sa.Engine:
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)


def _sqlite_engine(url: str, pool: type[sa.Pool]) -> sa.Engine:
    arguments = {"check_same_thread": False, "timeout": BUSY_SECONDS}
    engine = sa.create_engine(url, poolclass=pool, connect_args=arguments, hide_parameters=True)
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: pysqlite's own are deferred
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: sa.Connection) -> None:
    """A writer takes the lock at once: a reader that becomes a writer half-way cannot wait for it."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN")
