"""Opens SQLite files that may come from a stranger.

Before anything is read: the file and those that SQLite keeps beside it are regular files, and the
schema is one of ours. While it is read: a statement does nothing that ours do not do, and causes no
more work than a sound file of its size can. (Its pages might refer to each other so that a small
file is endless.) https://sqlite.org/security.html
"""

import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder, descriptor_path

VERSION: Final = 4  # of the schema
BESIDE: Final = ("-wal", "-shm", "-journal")  # endings of the files that SQLite keeps beside one
MAX_ROW_BYTES: Final = 1 << 25
MAX_SCHEMA_WORK: Final = 50_000  # steps to read the schema, which takes hundreds
MIN_WORK: Final = 2_000_000  # steps of SQLite's machine that a file of any size may cause
MAX_WORK_PER_BYTE: Final = 10  # a row takes at least 10 bytes and at most 60 steps
_TICK: Final = 1000  # steps between two looks
_ALLOWED: Final = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_TRANSACTION,
}
_TABLES: Final = {
    "meta", "sweeps", "records", "leases", "snapshots",
    "trials", "reports", "events", "holders", "attempts",
}  # fmt: skip
_PLAIN: Final = ("CREATE TABLE ", "CREATE INDEX ")  # else it is a view, a trigger or virtual
# A rollback journal that ends with these bytes names another file, which SQLite would delete.
_NAMES_ANOTHER: Final = bytes.fromhex("d9d505f920a163d7")


class Connection(Protocol):
    """A connection to a database. Its parameters are named, as in `:name`."""

    is_server: bool

    def execute(self, statement: str, values: Any = ..., /) -> Any:
        """Run a statement; a cursor over the rows that it finds."""

    def executemany(self, statement: str, rows: list[Mapping[str, Any]], /) -> Any:
        """Run a statement for each of some rows."""

    def transaction(self, *, write: bool = False) -> AbstractContextManager[Any]:
        """A transaction, which sees one state of the database; an error rolls it back."""

    def clock(self) -> float:
        """Seconds since 1970 on the clock that all users of the database share."""

    def lock_schema(self) -> None:
        """Keep others from creating tables or sweeps until the transaction ends."""

    def close(self) -> None:
        """Close it."""


class SqliteConnection(sqlite3.Connection):
    """A connection to a file of this program, or to memory."""

    is_server = False

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """See `Connection`. A writer locks at once: a reader cannot wait to become one."""
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.in_transaction:
                self.execute("ROLLBACK")
            raise

    def clock(self) -> float:
        """The clock of this machine."""
        return time.time()

    def lock_schema(self) -> None:
        """Do nothing: a file has one writer at a time."""


class FileConnection(SqliteConnection):
    """A connection to a file that may come from a stranger."""

    path = ""
    _work = 0

    def protect(self, path: str) -> None:
        """Bound what statements may do, and check the schema; before the first statement."""
        self.path = path
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.set_progress_handler(lambda: self._works(MAX_SCHEMA_WORK), _TICK)
        if sys.version_info >= (3, 12):
            self.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        self.execute("PRAGMA trusted_schema=OFF")
        self.execute("PRAGMA cell_size_check=ON")
        self.execute("PRAGMA synchronous=FULL")
        self.set_authorizer(_allow)
        _check_schema(self, path)
        self.set_progress_handler(lambda: self._works(self._allowed_work()), _TICK)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """See `Connection`; the work is counted anew."""
        self._work = 0
        with super().transaction(write=write):
            yield

    def _works(self, allowed: int) -> bool:
        """Count some work; whether to end the statement."""
        self._work += _TICK
        return self._work > allowed

    def _allowed_work(self) -> int:
        if self._work < MIN_WORK:
            return MIN_WORK
        files = (Path(self.path), Path(f"{self.path}-wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        return max(MIN_WORK, MAX_WORK_PER_BYTE * size)


def connect(file: Path, options: str = "mode=rw", *, timeout: float = 5.0) -> FileConnection:
    """Open a SQLite file and check its schema.

    Args:
        options: of SQLite's URI; the file is not written to with `mode=ro`.
        timeout: seconds to wait for locks.

    Raises:
        StoreError: a link, a pipe or a device is in place of a file, or the schema is not ours.
        sqlite3.Error: it cannot be opened or read.
    """
    check_files(file, written="mode=ro" not in options)
    with _openable(file) as path:
        connection = sqlite3.connect(
            f"file:{quote(path)}?{options}",
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            factory=FileConnection,
            uri=True,
        )
    try:
        connection.protect(str(file))
    except BaseException:
        connection.close()
        raise
    return connection


def connect_own(place: Path | str) -> SqliteConnection:
    """Open a file that this process has made, or a URI of memory."""
    return sqlite3.connect(
        place,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteConnection,
        uri=isinstance(place, str),
    )


def mode(file: Path, *, readonly: bool) -> str:
    """URI options to open a file. In a read-only folder without a log, the file cannot change."""
    if os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
        return "mode=ro" if readonly else "mode=rw"
    return "mode=ro" if Path(f"{file}-wal").exists() else "mode=ro&immutable=1"


def check_files(file: Path, *, written: bool) -> os.stat_result | None:
    """Check a file and those beside it without opening them.

    To close a file would free the locks that SQLite has on it.

    Returns:
        Its facts; None if it does not exist.

    Raises:
        StoreError: one is a link, a pipe or a device, has another name and is written to, or names
            a file elsewhere.
    """
    folder = Folder(file.parent)
    try:
        facts = folder.check_file(file.name, written=written)
        beside = [folder.check_file(file.name + end, written=True) for end in BESIDE]
    except FileNotFoundError:  # the folder does not exist
        return None
    journal = f"{file.name}-journal"
    if beside[-1] and beside[-1].st_size >= len(_NAMES_ANOTHER):
        with folder.open(journal) as opened:
            opened.seek(-len(_NAMES_ANOTHER), os.SEEK_END)
            if opened.read() == _NAMES_ANOTHER:
                raise StoreError(
                    f"{folder.path / journal} names a file elsewhere, which SQLite would delete. "
                    "No ledger has such a journal: do not trust this store"
                )
    return facts


@contextmanager
def _openable(file: Path) -> Iterator[str]:
    """A path that leads to the file without another look at the folders above it."""
    with Folder(file.parent).descriptor() as folder:
        path = descriptor_path(folder)
        yield f"{path}/{file.name}" if path else str(file)


def _check_schema(connection: FileConnection, name: str) -> None:
    """Check that the schema has only tables and indexes of names that a release has used.

    A view or a trigger would run SQL of whoever made the file, a virtual table code of SQLite that
    trusts its data. In an expression of a table or an index, `trusted_schema` allows harmless
    functions only.

    Raises:
        StoreError: there is something else; a newer schema is named as such.
    """
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 100"
    for kind, item, table, sql in connection.execute(query).fetchall():
        if kind == "index" and sql is None and item == f"sqlite_autoindex_{table}_1":
            continue  # of a primary key or of a unique column
        if isinstance(sql, str) and table in _TABLES and sql.startswith(_PLAIN):
            continue
        query = "SELECT value FROM meta WHERE key = 'schema_version'"
        try:
            version = connection.execute(query).fetchone()
        except sqlite3.Error:
            version = None
        if version and str(version[0]).isdecimal() and int(version[0]) > VERSION:
            raise newer(name, str(version[0]))
        raise StoreError(
            f"{name} is no ledger of automl, or was changed by another program: its "
            f"{kind!s:.20} {item!r:.60} is not ours. It was left as it is; do not trust it. "
            "If it is yours, `automl repair` keeps its sound records"
        )


def newer(name: str, version: str) -> StoreError:
    """The error for a schema of a later release."""
    return StoreError(
        f"{name} has schema version {version}, this automl knows up to {VERSION}: "
        "use a newer automl"
    )


def _allow(
    action: int, _first: str | None, _second: str | None, _database: str | None, source: str | None
) -> int:
    """Allow what our statements do. `source` is the view or trigger that acts: we have none."""
    return sqlite3.SQLITE_OK if action in _ALLOWED and source is None else sqlite3.SQLITE_DENY


def copy(file: Path, target: Path, *, readonly: bool = False) -> None:
    """Write a checked copy of a SQLite file that others may be using.

    Args:
        readonly: do not open the file for writing. Otherwise its log is brought into it at the end
            if nobody else uses it.

    Raises:
        OSError, sqlite3.Error: the copy fails, or the file is damaged.
    """
    check_files(target, written=True)
    options = mode(file, readonly=readonly)
    with closing(connect(file, options)) as source, closing(connect_own(target)) as new:
        source.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")  # everything in one file
        check_pages(new)
    flush(target)


def check_pages(connection: sqlite3.Connection) -> None:
    """Read all of a SQLite file; raise sqlite3.DatabaseError if a page is damaged."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")
