"""Marks a public function whose name or use will go."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(since: str, instead: str) -> Callable[[F], F]:
    """A decorator: each call warns (FutureWarning, which Python shows to everybody).

    The function may go two minor versions later, see docs/project/stability.md.

    Args:
        since: the version that deprecates it, such as "0.4".
        instead: what to use, as code.
    """
    major, minor = map(int, since.split("."))

    def decorate(function: F) -> F:
        words = (
            f"{function.__qualname__} is deprecated since {since} and may go in "
            f"{major}.{minor + 2}: use {instead}"
        )

        @functools.wraps(function)
        def warning(*args: Any, **keywords: Any) -> Any:
            warnings.warn(words, FutureWarning, stacklevel=2)
            return function(*args, **keywords)

        return cast(F, warning)

    return decorate
