"""Opens and creates the database: a SQLite file in a folder, SQLite in memory, or a server.

A file is created whole or not at all: it is written under another name, then renamed. A file that
is empty, damaged or of a newer schema is refused, because it may hold somebody's results.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import migrations, store_errors
from .drafts import exclusive_draft
from .head import HEAD
from .records import check_seal, seal
from .schema import META, METADATA, VERSION
from .sqlite_files import BESIDE, FileConnection, check_files, connect, mode, newer
from .store_errors import damaged, translate_decoding_errors, translate_errors

IN_MEMORY: Final = "sqlite://"
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
        engine = _sqlite_engine(StaticPool) if memory else _server_engine(url)
        if create or memory:
            _create_tables(engine)
        if checked_version(engine, name) < VERSION:
            if readonly:
                raise StoreError(
                    f"{name}: its schema is older; the next `automl sweep` or `resume` in it "
                    "brings it up to date"
                )
            migrations.upgrade_server(engine, name)
        return engine


def checked_version(engine: sa.Engine, name: str) -> int:
    """The version of the schema.

    Raises:
        StoreError: there is no version, or it is newer than this program knows.
    """
    row = _version(engine)
    if row is None:
        raise StoreError(
            f"{name} is no ledger of automl: it has no schema version. It was left as it is"
        )
    text = str(row["value"])
    if text.isdecimal() and int(text) > VERSION:
        raise newer(name, text)
    with translate_decoding_errors(name):
        if "sum" in row and text != "3":  # `migrations` checks the sums of schema 3
            check_seal("meta", row, f"its schema version {text[:20]!r}")
    if not text.isdecimal():
        raise damaged(name, f"its schema version is {text[:20]!r}")
    return int(text)


def check_pages(engine: sa.Engine, name: str) -> None:
    """Read all of a SQLite file; raise StoreError if a page is damaged."""
    with translate_errors(name), engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise damaged(name, str(found))


def _version(engine: sa.Engine) -> Mapping[str, Any] | None:
    """The row of the version, of whatever schema; None if there is no such table or row."""
    query = "SELECT * FROM meta WHERE key = 'schema_version'"
    with engine.connect() as connection:
        try:
            found = connection.exec_driver_sql(query).mappings().first()
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            if "no such table" not in str(error) and "does not exist" not in str(error):
                raise
            return None
    return None if found is None else dict(found)


def is_ledger(store: str) -> bool:
    """Whether a store holds a ledger already.

    Raises:
        StoreError: the server does not answer.
    """
    url, file, _ = locate(store)
    if file is not None:
        return file.exists()
    with translate_errors(shown(store)):
        engine = _server_engine(url)
        try:
            return _version(engine) is not None
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
        memory = _sqlite_engine(StaticPool)
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


def write_empty(draft: Path) -> None:
    """Write a ledger without sweeps to a file that nobody else uses, and flush it."""
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
    _create_tables(plain_engine(lambda: sqlite3.connect(draft)))
    flush(draft)


def plain_engine(creator: Callable[[], sqlite3.Connection]) -> sa.Engine:
    """An engine of a SQLite file that `creator` opens, for each transaction anew."""
    return _sqlite_engine(NullPool, creator)


def create_tables(connection: sa.Connection) -> None:
    """Make the tables of an empty ledger."""
    METADATA.create_all(connection)
    version = seal("meta", {"key": "schema_version", "value": str(VERSION)})
    connection.execute(META.insert(), version)


def _create_tables(engine: sa.Engine) -> None:
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        migrations.lock_schema(connection)
        if not sa.inspect(connection).has_table(META.name):
            create_tables(connection)


def _server_engine(url: str) -> sa.Engine:
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)


def _sqlite_engine(
    pool: type[sa.Pool], creator: Callable[[], sqlite3.Connection] | None = None
) -> sa.Engine:
    """An engine of a file that `creator` opens; without one, of a database in memory."""
    memory = partial(sqlite3.connect, ":memory:", check_same_thread=False)
    engine = sa.create_engine(
        IN_MEMORY, poolclass=pool, creator=creator or memory, hide_parameters=True
    )
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin` begins: pysqlite's transactions are deferred
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: sa.Connection) -> None:
    """Lock at once for writing: a reader that becomes a writer cannot wait for the lock."""
    opened: Any = connection.connection.dbapi_connection
    if isinstance(opened, FileConnection):
        opened.begin()
    connection.exec_driver_sql(
        "BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN"
    )
