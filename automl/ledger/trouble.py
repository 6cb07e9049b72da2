"""What can go wrong with a store: said as a StoreError that names it, or waited out where it passes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa

from automl.errors import AutomlError, StoreError

BUSY_SECONDS: Final = 30.0  # for a lock of SQLite
PATIENCE_SECONDS: Final = 60.0  # for a server that is started again
_PAUSE_SECONDS: Final = 0.25
# Classes and codes of SQLSTATE: lost connections, a server that goes down or comes up, conflicts between transactions.
_PASSING: Final = ("08", "57P", "40001", "40P01", "53300")
_DAMAGED: Final = ("malformed", "not a database", "decode to UTF-8", "unsupported file format")
T = TypeVar("T")


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what the database or the file system says into a StoreError that names the store."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise _explained(name, str(getattr(error, "orig", None) or error)) from error
    except UnicodeDecodeError as error:  # SQLite quotes what it cannot read
        raise damaged(name, f"text that cannot be read: {error}") from error
    except ModuleNotFoundError as error:
        raise StoreError(f"{name}: this kind of store needs the package {error.name!r}") from error
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror or error}") from error


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Turn whatever a record that was damaged makes the reader raise into a StoreError."""
    try:
        yield
    except StoreError:
        raise
    except (
        AutomlError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise damaged(
            name, f"a record cannot be read: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def damaged(name: str, reason: str) -> StoreError:
    """The refusal of a damaged store, with the way back to its backup."""
    message = f"{name}: the file is damaged ({reason}). It was left as it is"
    kept = backup_of(Path(name))
    if not kept.is_file():
        return StoreError(f"{message}; there is no backup")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(kept.stat().st_mtime))
    return StoreError(
        f"{message}. The backup of {when} is {kept}: move {name}* away and copy it to {name}"
    )


def backup_of(file: Path) -> Path:
    """Where the automatic backup of a SQLite file is; in a folder, so that `FILE*` does not name it."""
    return file.parent / "backup" / file.name


def persistently(action: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """What an action returns, tried again for so long while its server is away or its transaction met another."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except sa.exc.DBAPIError as error:
            if not passing(error) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def reading(engine: sa.Engine, name: str, read: Callable[[sa.Connection], T]) -> T:
    """What is read from a store that was opened before; a server that is away meanwhile is waited for.

    Raises:
        StoreError: the store cannot be read, or its server stayed away.
    """

    def once() -> T:
        with engine.connect() as connection:
            return read(connection)

    with translated(name):
        return persistently(once)


def passing(error: sa.exc.DBAPIError) -> bool:
    """Whether the same may succeed in a moment; SQLite has waited already when it gives up."""
    if not isinstance(error, sa.exc.OperationalError) and not error.connection_invalidated:
        return False
    if type(error.orig).__module__.startswith("sqlite3"):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or str(state).startswith(_PASSING)


def _explained(name: str, message: str) -> StoreError:
    if any(word in message for word in _DAMAGED):
        return damaged(name, message)
    if "locked" in message or "busy" in message:
        return StoreError(f"{name}: locked by another process for more than {BUSY_SECONDS:g} s")
    if "disk is full" in message:
        return StoreError(f"{name}: the disk is full; what was recorded before is kept")
    if "disk I/O error" in message:
        return StoreError(
            f"{name}: the disk cannot be read or written ({message}); what was recorded before is kept"
        )
    if "readonly database" in message:
        return StoreError(f"{name}: it cannot be written to, the file or its folder is read-only")
    return StoreError(f"{name}: {message.strip()}")
