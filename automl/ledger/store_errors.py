"""Turns errors of databases and files into StoreErrors, and retries what may succeed later."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from automl.errors import AutomlError, StoreError

MAX_BUSY_SECONDS: Final = 30.0  # how long to wait for a lock of SQLite
MAX_RETRY_SECONDS: Final = 60.0  # how long to wait for a server that restarts
_PAUSE_SECONDS: Final = 0.25
_DAMAGED: Final = (
    "malformed",
    "not a database",
    "decode to UTF-8",
    "unsupported file format",
    "no such column",
    "too big",
)
# A part of the database's message, and the words for a person.
_EXPLANATIONS: Final = {
    "locked": "locked by another process for more than {busy:g} s",
    "busy": "locked by another process for more than {busy:g} s",
    "disk is full": "the disk is full; what was recorded before is kept",
    "disk I/O error": "the disk cannot be read or written ({message}); "
    "what was recorded before is kept",
    "readonly database": "it cannot be written to, the file or its folder is read-only",
}
T = TypeVar("T")


class DamageError(ValueError):
    """What was read is damaged; the message says what."""


class HeldError(StoreError):
    """Another process holds the sweep."""


class ServerError(Exception):
    """A server has refused a statement, or does not answer.

    Args:
        message: of its driver; is_transient: whether the same action may succeed in a moment.
    """

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn errors of a database, of files and of what they hold into StoreErrors.

    Args:
        name: of the store: a SQLite file, or the URL of a server.
    """
    try:
        yield
    except StoreError:
        raise
    except (sqlite3.Error, ServerError) as error:
        raise _explained(name, str(error)) from error
    except ModuleNotFoundError as error:
        raise StoreError(f"{name}: this kind of store needs the package {error.name!r}") from error
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror or error}") from error
    except DamageError as error:
        raise damaged(name, str(error)) from error
    except (
        AutomlError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise damaged(name, f"a record cannot be read: {reason}") from error


def damaged(name: str, reason: str) -> StoreError:
    """The error for a damaged store. It tells what can be done.

    Args:
        name: the SQLite file, or the URL of a server.
    """
    kind = "backup of the server" if "://" in name else "copy of the file"
    return StoreError(
        f"{name} is damaged ({reason}). It was left as it is: put back a {kind}, "
        "or name another store with --store"
    )


def retry(action: Callable[[], T], seconds: float = MAX_RETRY_SECONDS) -> T:
    """Run an action again while it fails with a transient error, for at most this many seconds.

    SQLite's errors are final: it has waited.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except ServerError as error:
            if not error.is_transient or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _explained(name: str, message: str) -> StoreError:
    if any(word in message for word in _DAMAGED):
        return damaged(name, message)
    for sign, explanation in _EXPLANATIONS.items():
        if sign in message:
            return StoreError(
                f"{name}: {explanation.format(message=message, busy=MAX_BUSY_SECONDS)}"
            )
    return StoreError(f"{name}: {message.strip()}")
