"""The errors that users of this project can see.

AutomlError                     root; `except AutomlError` catches every deliberate error
├── UsageError                  the request is wrong: exit status 2, nothing was created
│   ├── SpaceError              a parameter, condition or constraint is malformed
│   ├── ConfigError             a configuration file or an override is wrong (automl.config)
│   ├── DataError               a data set is missing or malformed (workers)
│   └── StoreError              the store cannot be opened, is damaged, or is locked
│       └── StoreFailure        the store failed during a sweep: exit status 1, resumable
├── SpaceExhausted              every configuration of a finite space was tried
└── TrialFailure                a trial ended without a result: `kind` is the reason
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


def needs(feature: str, package: str, extra: str = "") -> str:
    """The message about a package that is not installed: what needs it, and how to get it."""
    ours = f"'automl-sweep[{extra}]'" if extra else "automl-sweep"
    return f"{feature} needs {package}: pip install {ours}"


class AutomlError(Exception):
    """Root of every error that this project raises on purpose."""


class UsageError(AutomlError, ValueError):
    """The request is wrong; the message gives the rule, the value, the place and the remedy."""


class SpaceError(UsageError):
    """A parameter, a condition, a constraint or a configuration does not fit its space."""


class ConfigError(UsageError):
    """One or more errors in a configuration file, one per line of the message."""


class DataError(UsageError):
    """A data set is missing, or one of its lines or records is malformed."""


class StoreError(UsageError):
    """The store cannot be opened or written, is damaged, or another controller holds the sweep."""


class StoreFailure(StoreError):
    """The store became unwritable during a sweep; earlier records are kept."""


class SpaceExhausted(AutomlError):
    """Every configuration of a finite space was tried."""


class TrialFailure(AutomlError):
    """A trial ended without a result.

    Args:
        kind: one of `FAILURE_KINDS`.
        message: the reason, for the user.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        if kind not in FAILURE_KINDS:
            raise UsageError(f"a failure's kind is one of {', '.join(FAILURE_KINDS)}, got {kind!r}")
        super().__init__(message or kind)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[TrialFailure], tuple[str, str]]:
        return (type(self), (self.kind, self.message))
