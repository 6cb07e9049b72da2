"""The errors of this package; the tree is drawn in `search_spaces.errors`."""

from search_spaces.errors import (
    FAILURE_KINDS,
    AutomlError,
    ConfigError,
    DataError,
    SpaceError,
    SpaceExhausted,
    StoreError,
    StoreFailure,
    TrialFailure,
    UsageError,
    needs,
)

__all__ = [
    "FAILURE_KINDS",
    "AutomlError",
    "ConfigError",
    "DataError",
    "SpaceError",
    "SpaceExhausted",
    "StoreError",
    "StoreFailure",
    "TrialFailure",
    "UsageError",
    "needs",
]
