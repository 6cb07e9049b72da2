"""The errors that people of this project can meet.

AutomlError                     root; `except AutomlError` catches everything that we raise on purpose
├── UsageError                  what was asked for is wrong: exit status 2, nothing was created
│   ├── SpaceError              a parameter, condition or constraint is not well formed
│   ├── ConfigError             a configuration file or an override (automl.config)
│   ├── DataError               a data set is missing or malformed (workers)
│   └── StoreError              the store cannot be opened, is damaged, or is held by another controller
│       └── StoreFailure        the store failed under a sweep that ran: exit status 1, it can be resumed
└── TrialFailure                a trial ended without a result: `kind` says why
"""

from __future__ import annotations

from typing import Final

FAILURE_KINDS: Final = (
    "out_of_memory",
    "non_finite",
    "timeout",
    "crashed",
    "preempted",
    "missing_metric",
)


class AutomlError(Exception):
    """Root of every error that this project raises on purpose."""


class UsageError(AutomlError, ValueError):
    """What was asked for is wrong; the message says the rule, the value received, where, and what to do."""


class SpaceError(UsageError):
    """A parameter, a condition, a constraint or a configuration does not fit its space."""


class ConfigError(UsageError):
    """One or more errors of a configuration file, each on a line of the message."""


class DataError(UsageError):
    """A data set is missing, or a line or record of it is malformed."""


class StoreError(UsageError):
    """The store cannot be opened or written, is damaged, or another controller holds the sweep."""


class StoreFailure(StoreError):
    """The store could not be written to any more while a sweep ran; what was recorded before is kept."""


class TrialFailure(AutomlError):
    """A trial ended without a result.

    Args:
        kind: one of `FAILURE_KINDS`.
        message: what happened, for a person.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        if kind not in FAILURE_KINDS:
            raise UsageError(f"a failure's kind is one of {', '.join(FAILURE_KINDS)}, got {kind!r}")
        super().__init__(message or kind)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[TrialFailure], tuple[str, str]]:
        return (type(self), (self.kind, self.message))
