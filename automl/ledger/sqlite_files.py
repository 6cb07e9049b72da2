"""Connections to SQLite: to a file in WAL mode, or to memory."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final, Protocol
from urllib.parse import quote

BESIDE: Final = ("-wal", "-shm", "-journal")  # endings of the files that SQLite keeps beside one


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
    """A connection to a file."""

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


class MemoryConnection(SqliteConnection):
    """The only connection to a database in memory, for all threads; it ends with the object."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock = RLock()

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """See `Connection`; one thread at a time has one."""
        with self._lock, super().transaction(write=write):
            yield

    def close(self) -> None:
        """Do nothing: others use it too."""


def connect(file: Path, options: str = "mode=rw", *, timeout: float = 5.0) -> SqliteConnection:
    """Open a SQLite file.

    Args:
        options: of SQLite's URI; the file is not written to with `mode=ro`.
        timeout: seconds to wait for locks.
    """
    uri = f"file:{quote(str(file))}?{options}"
    connection: SqliteConnection = _open(uri, SqliteConnection, timeout)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def connect_memory() -> MemoryConnection:
    """A new database in memory."""
    found: MemoryConnection = _open(":memory:", MemoryConnection, 0.0)
    return found


def mode(file: Path, *, readonly: bool) -> str:
    """URI options to open a file. In a read-only folder without a log, the file cannot change."""
    if os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
        return "mode=ro" if readonly else "mode=rw"
    return "mode=ro" if Path(f"{file}-wal").exists() else "mode=ro&immutable=1"


def _open(place: str, factory: Any, timeout: float) -> Any:
    return sqlite3.connect(
        place,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=factory,
        uri=True,
    )
