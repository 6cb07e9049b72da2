"""Names of sweeps, which are also the names of their folders."""

import re
from typing import Final

from automl.errors import UsageError
from search_spaces.validation import show

MAX_NAME: Final = 64
RESERVED: Final = "auto"  # `like:auto` of a prior
NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")


def check_name(name: str) -> str:
    """Return the name if a sweep may have it.

    Raises:
        UsageError: the name has another form.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            "a name has 1 to 64 of A-Z a-z 0-9 _ . - and begins with a letter or digit, "
            f"got {show(name)}"
        )
    if name == RESERVED:
        raise UsageError(
            f"no sweep is named {name!r}, because `like:auto` of a prior means all that are alike: "
            "choose another name"
        )
    return name


def companion(sweep: str, kind: str) -> str:
    """Name of a sweep that belongs to another one, such as `nmt.confirm`."""
    return f"{sweep[: MAX_NAME - 1 - len(kind)]}.{kind}"
