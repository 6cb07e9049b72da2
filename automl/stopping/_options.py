"""Checks the range of a stopper's options; their types are checked where a user names them."""

import math

from automl.errors import UsageError


def check_least(stopper: str, name: str, value: int, least: int) -> int:
    """The value; raises UsageError if it is below `least`."""
    if value < least:
        raise UsageError(f"{name} of stopper {stopper!r} must be at least {least}, got {value}")
    return value


def check_positive(stopper: str, name: str, value: float | None) -> float | None:
    """The value; raises UsageError if it is not above 0 and finite. None is left as it is."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{name} of stopper {stopper!r} must be above 0 and finite, got {value}")
    return value
