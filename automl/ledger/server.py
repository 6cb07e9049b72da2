"""A PostgreSQL server, through SQLAlchemy: its pool, its drivers and its URLs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from automl.errors import StoreError

from .store_errors import ServerError

_SCHEMA_LOCK: Final = 0x6175746F6D6C
# Codes of SQLSTATE, by their beginning: lost connections, a server that restarts, conflicts.
_TRANSIENT: Final = ("08", "57P", "40001", "40P01", "53300")
_text = lru_cache(sa.text)


class ServerConnection:
    """A `Connection` to a server. It connects again after the server has restarted."""

    is_server = True

    def __init__(self, engine: sa.Engine) -> None:
        self._connection: Any = None
        with _translated():
            self._connection = engine.connect()

    def execute(self, statement: str, values: Any = None, /) -> Any:
        """See `Connection`."""
        with _translated():
            return self._connection.execute(_text(statement), values or {})

    def executemany(self, statement: str, rows: list[Mapping[str, Any]], /) -> Any:
        """See `Connection`."""
        return self.execute(statement, rows)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """See `Connection`."""
        with _translated(), self._connection.begin():
            if not write:
                self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield

    def clock(self) -> float:
        """The clock of the server."""
        query = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
        return float(self.execute(query).fetchone()[0])

    def lock_schema(self) -> None:
        """See `Connection`: two that create or change the same table at once collide."""
        self.execute("SELECT pg_advisory_xact_lock(:lock)", {"lock": _SCHEMA_LOCK})

    def close(self) -> None:
        """Give the connection back to the pool."""
        self._connection.close()


def parsed(url: str) -> sa.URL:
    """The parts of a URL.

    Raises:
        StoreError: it is malformed. The message does not repeat it: it may hold a password.
    """
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise StoreError(
            "the store must be a folder or a database URL such as postgresql://host/name"
        ) from error


def engine_of(url: str) -> sa.Engine:
    """The pool of connections to a server."""
    with _translated():
        return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        message = str(getattr(error, "orig", None) or error)
        raise ServerError(message, is_transient=_is_transient(error)) from error


def _is_transient(error: sa.exc.SQLAlchemyError) -> bool:
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if not isinstance(error, sa.exc.OperationalError) and not error.connection_invalidated:
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or str(state).startswith(_TRANSIENT)
