"""Calls again what a store far away refuses for a moment."""

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
FIRST_SECONDS: Final = 0.5
MAX_SECONDS: Final = 30.0
# No second call would help: the credentials, the name or the request itself is wrong.
_FINAL: Final = (
    PermissionError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    ValueError,
    TypeError,
    ImportError,
    NotImplementedError,
)
_NO_CREDENTIALS: Final = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if type(error).__name__ in _NO_CREDENTIALS or isinstance(error, _FINAL):
        return False
    return isinstance(error, Exception)


def retried(
    call: Callable[[], T],
    seconds: float,
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """The result of `call`, which is called again after transient errors.

    The delay doubles from 0.5 s to 30 s; a random part of it keeps workers from calling all at a
    time.

    Args:
        call: has no effect if it raises, or the same effect if it is called twice.
        seconds: after this many seconds the error is raised.
        wait: waits for a delay; True if the caller no longer wants the result.

    Raises:
        Exception: the last error of `call`.
    """
    end = time.monotonic() + seconds
    delay = FIRST_SECONDS
    while True:
        try:
            return call()
        except Exception as error:
            left = end - time.monotonic()
            if left <= 0 or not is_transient(error):
                raise
            if wait(min(delay * random.uniform(0.5, 1.0), left)):
                raise
        delay = min(2 * delay, MAX_SECONDS)


def described(error: BaseException) -> str:
    """An error in a line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
