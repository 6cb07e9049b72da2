"""Opens and creates the database: a SQLite file in a folder, SQLite in memory, or a server.

A file is created whole or not at all: it is written under another name, then renamed. A file that
is empty, damaged or of a newer schema is refused, because it may hold somebody's results.
"""

import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from automl.errors import StoreError, needs
from workers.files.disk import flush
from workers.files.folder import Folder

from . import store_errors
from .drafts import exclusive_draft
from .head import HEAD
from .records import check_seal
from .schema import as_dict, create_tables, select, write_empty
from .sqlite_files import (
    BESIDE,
    VERSION,
    Connection,
    check_files,
    check_pages,
    connect,
    connect_own,
    mode,
    newer,
)
from .store_errors import ServerError, damaged, translated

FILE_NAME: Final = "ledger.sqlite3"
IN_MEMORY: Final = "sqlite://"
OLDER: Final = ("1", "2", "3")  # schemas that `migrations` reads
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
        with translated(self.name), closing(self.connect()) as connection:
            if isinstance(connection, sqlite3.Connection):
                check_pages(connection)


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
        StoreError: the store is missing, damaged, of a newer schema, or cannot be reached.
    """
    url, file, _ = locate(store)
    if file is not None:
        return open_file(file, create=create, readonly=readonly)
    if url == IN_MEMORY:
        return in_memory()
    name = shown(store)
    with translated(name):
        database = _server(url, name)
        if create:
            _make_tables(database)
        if checked_version(database) < VERSION:
            if readonly:
                raise StoreError(
                    f"{name}: its schema is older; the next `automl sweep` or `resume` in it "
                    "brings it up to date"
                )
            from . import migrations

            with database.transaction(write=True) as connection:
                migrations.upgrade_server(connection, name)
        return database


def in_memory() -> Database:
    """A new database in memory. It lasts until it is closed."""
    place = f"file:automl-{uuid.uuid4().hex}?mode=memory&cache=shared"
    first = connect_own(place)
    with first.transaction(write=True):
        create_tables(first)
    return Database(IN_MEMORY, lambda: connect_own(place), first.close)


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
        return stored_version(database) is not None


def open_file(file: Path, *, create: bool = False, readonly: bool) -> Database:
    """Open a SQLite file, which may come from a stranger, and check its schema.

    Raises:
        StoreError: as `open_database`.
    """
    name = str(file)
    with translated(name):
        facts = check_files(file, written=not readonly)
        if facts is None:
            if not create:
                raise StoreError(f"there is no store at {file}")
            _create_file(file)
        elif facts.st_size == 0:
            raise damaged(name, "it is empty, it holds no ledger")
        options = mode(file, readonly=readonly)
        database = Database(
            name, lambda: connect(file, options, timeout=store_errors.MAX_BUSY_SECONDS)
        )
        version = checked_version(database)
        if version == VERSION:
            return database
        from . import migrations  # SQLite's files are seldom old

        try:
            if not readonly:
                migrations.upgrade_file(file, version)
                return database
            memory = in_memory()
            database.check_pages()
            with memory.transaction(write=True) as new, database.transaction() as old:
                migrations.copy_sweeps(old, new, name)
            return memory
        except sqlite3.Error as error:
            raise StoreError(
                f"{file}: it has schema version {version} and could not be migrated: {error}"
            ) from error


def checked_version(database: Database) -> int:
    """The version of the schema.

    Raises:
        StoreError: there is no version, or it is newer than this program knows.
        DamageError: its row has another checksum.
    """
    text, name = stored_version(database), database.name
    if text is None:
        raise StoreError(
            f"{name} is no ledger of automl: it has no schema version. It was left as it is"
        )
    if text.isdecimal() and int(text) > VERSION:
        raise newer(name, text)
    if text not in OLDER:
        with database.transaction() as connection:
            row = connection.execute(select("meta")).fetchone()
        check_seal("meta", as_dict("meta", row), f"its schema version {text[:20]!r}")
    if not text.isdecimal():
        raise damaged(name, f"its schema version is {text[:20]!r}")
    return int(text)


def stored_version(database: Database) -> str | None:
    """The version of the schema, unverified; None if there is no such table or row."""
    try:
        with (
            closing(database.connect()) as connection,
            # on a server, see what a migration commits while this waits for it
            connection.transaction(write=connection.is_server),
        ):
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
