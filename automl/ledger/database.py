"""Opens and creates the database: a SQLite file in a folder, SQLite in memory, or a server.

A file is created whole or not at all: it is written under another name, then renamed. A file that
is empty, damaged or of another schema is refused, because it may hold somebody's results.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from automl.errors import StoreError, needs
from workers.files.folder import flush

from . import store_errors
from .schema import VERSION, create_tables
from .sqlite_files import BESIDE, Connection, connect, connect_memory, mode
from .store_errors import DamageError, ServerError, damaged, translated

FILE_NAME: Final = "ledger.sqlite3"
IN_MEMORY: Final = "sqlite://"
_PASSWORD: Final = re.compile("password|passwd", re.IGNORECASE)
_MISTYPED: Final = re.compile(r"(postgres[\w+]*:|[a-z][\w+]+:/)(?!/)", re.IGNORECASE)  # a URL


class Database:
    """A database that is open; from any thread.

    Args:
        name: for messages; connect: opens a connection.
        close: ends what stays open between connections.
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], close: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.connect = connect
        self.close = close or (lambda: None)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Connection]:
        """A connection for one transaction."""
        with closing(self.connect()) as connection, connection.transaction(write=write):
            yield connection

    def check_pages(self) -> None:
        """Read all of a SQLite file; raise StoreError if a page is damaged."""
        with translated(self.name), self.transaction() as connection:
            if not connection.is_server:
                (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
                if found != "ok":
                    raise DamageError(found)


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
    if _MISTYPED.match(text) and "://" not in text:  # it may hold a password
        raise StoreError(
            "the store must be a folder or a database URL such as postgresql://host/name, with two "
            "slashes; write ./ before the name of a folder that has a colon"
        )
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
    text: str = _parsed(os.fspath(url)).set(query={}).render_as_string(hide_password=True)
    return text


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


def _parsed(url: str) -> Any:
    try:
        from .server import parsed  # SQLAlchemy takes longer than to look at a small sweep
    except ModuleNotFoundError as error:
        raise StoreError(needs("a store that is a URL", str(error.name), "postgres")) from error
    return parsed(url)


def open_database(store: str | os.PathLike[str], *, create: bool, readonly: bool) -> Database:
    """Open a database and check its schema.

    Raises:
        StoreError: the store is missing, damaged, of another schema, or cannot be reached.
    """
    url, file, _ = locate(store)
    if url == IN_MEMORY:
        return _in_memory()
    if file is not None:
        return _open_file(file, create=create, readonly=readonly)
    name = shown(store)
    with translated(name):
        database = _server(url, name)
        if create:
            _make_tables(database)
        _check_version(database)
    return database


def is_ledger(store: str) -> bool:
    """Whether a store holds a ledger already.

    Raises:
        StoreError: the server does not answer.
    """
    url, file, _ = locate(store)
    if file is not None:
        return file.exists()
    name = shown(store)
    with translated(name), closing(_server(url, name)) as database:
        return _stored_version(database) is not None


def _in_memory() -> Database:
    """A new database in memory. It lasts until it is closed."""
    only = connect_memory()
    with only.transaction(write=True):
        create_tables(only)
    return Database(IN_MEMORY, lambda: only, lambda: sqlite3.Connection.close(only))


def _open_file(file: Path, *, create: bool, readonly: bool) -> Database:
    name = str(file)
    with translated(name):
        if create and not file.exists():
            _create_file(file)
        if not file.exists():
            raise StoreError(f"there is no store at {file}")
        if not file.is_file():
            raise StoreError(f"{file} is no file: a ledger is one")
        if file.stat().st_size == 0:
            raise damaged(name, "it is empty, it holds no ledger")
        options = mode(file, readonly=readonly)
        database = Database(
            name, lambda: connect(file, options, timeout=store_errors.MAX_BUSY_SECONDS)
        )
        _check_version(database)
    return database


def _check_version(database: Database) -> None:
    """Raise StoreError if there is no ledger of our schema."""
    version, name = _stored_version(database), database.name
    if version is None:
        raise StoreError(
            f"{name} is no ledger of automl: it has no schema version. It was left as it is"
        )
    if version != str(VERSION):
        raise StoreError(
            f"{name} has schema version {version[:20]!r} and this automl reads only {VERSION}: "
            "name another store with --store, or use the automl that wrote this one"
        )


def _stored_version(database: Database) -> str | None:
    """The version of the schema; None if there is no such table or row."""
    try:
        with database.transaction() as connection:
            query = "SELECT value FROM meta WHERE key = 'schema_version'"
            row = connection.execute(query).fetchone()
    except (sqlite3.OperationalError, ServerError) as error:
        if "no such table" not in str(error) and "does not exist" not in str(error):
            raise
        return None
    return str(row[0]) if row else None


def _server(url: str, name: str) -> Database:
    from .server import ServerConnection, engine_of

    engine = engine_of(url)
    return Database(name, lambda: ServerConnection(engine), engine.dispose)


def _make_tables(database: Database) -> None:
    """Make the tables of a server, unless there are some."""
    with database.transaction(write=True) as connection:
        connection.lock_schema()
        if connection.execute("SELECT to_regclass('meta')").fetchone()[0] is None:
            create_tables(connection)


def _create_file(file: Path) -> None:
    """Make an empty ledger, unless another process has made one."""
    if not file.parent.exists():
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
    draft = file.with_name(f".{file.name}.draft")
    with _alone_in(file.parent):
        if file.exists():
            return
        draft.unlink(missing_ok=True)  # of a process that was killed
        with closing(connect(draft, "mode=rwc")) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
            with connection.transaction(write=True):
                create_tables(connection)
        flush(draft)
        for end in BESIDE:  # of a deleted ledger: SQLite would replay its log
            file.with_name(file.name + end).unlink(missing_ok=True)
        draft.replace(file)
        flush(file.parent)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process makes a ledger in a folder."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks lock no folders
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
