"""The checksums of the tables' rows. Every row is summed; no damaged row is believed.

A sum is the BLAKE2b hash (RFC 7693) of 8 bytes of a row's values, as a signed 64-bit number. Values
are written by `ascii`, whose text of numbers, None and strings is the same in every Python version.

A row that is missing, or older than it should be, is noticed too:

- `meta` holds the total of the sweeps, and each sweep the total of its commands;
- the holder of a sweep holds the total of its trials, and each trial the total of its reports;
- the events of controllers are a chain: each event holds the sum of the one before, and the holder
  the sum of the last one. Commands come from other processes, so they are not in the chain.

A total is the sum of the rows' sums modulo 2^64. It needs no order, so a row that changes costs one
subtraction and one addition.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from types import NoneType
from typing import Any, Final

import sqlalchemy as sa

from .schema import EVENTS, HOLDERS, META, REPORTS, SWEEPS, TRIALS

Row = dict[str, Any]
_HALF: Final = 2**63
_CONVERTERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    float: lambda value: float(value) + 0.0,  # SQLite stores -0.0 as 0.0
    int: int,
    str: str,
}


@dataclass(frozen=True)
class Checksum:
    """The checksum of some columns of a table.

    Args:
        label: of at most 16 bytes; it makes the sums of different tables differ.
        table: the table; target: the column that holds the sum.
        columns: those that it covers, in order.
    """

    label: str
    table: sa.Table
    target: str
    columns: tuple[str, ...]

    def seal(self, row: Mapping[str, Any]) -> Row:
        """The row with its sum, and with its values as the database will return them."""
        plain = {name: self._plain(name, value) for name, value in row.items()}
        return {**plain, self.target: self.of([plain[name] for name in self.columns])}

    def of(self, values: Iterable[Any]) -> int:
        """The sum of a row's values, in the order of `columns`."""
        found = self._empty.copy()  # in half the time of a new one
        found.update(ascii(tuple(values)).encode())
        return int.from_bytes(found.digest(), "big", signed=True)

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row that was read has values of the columns' types, and its sum.

        SQLite keeps a value of any type in any column: a path instead of a number, say.
        """
        kinds = self._kinds
        fits = all(isinstance(row[name], kinds[name]) for name in self.columns)
        return fits and bool(row[self.target] == self.of([row[name] for name in self.columns]))

    @cached_property
    def _kinds(self) -> Mapping[str, tuple[type, ...]]:
        found = {name: self.table.c[name].type.python_type for name in self.columns}
        return {
            name: (int, float, NoneType) if kind is float else (kind, NoneType)
            for name, kind in found.items()
        }

    @cached_property
    def _empty(self) -> blake2b:
        return blake2b(digest_size=8, person=self.label.encode())

    def _plain(self, name: str, value: Any) -> Any:
        return None if value is None else _CONVERTERS[self.table.c[name].type.python_type](value)


def _all_but(table: sa.Table, *names: str) -> tuple[str, ...]:
    return tuple(column.name for column in table.c if column.name not in names)


_PROGRESS = ("state", "seconds", "stop_requested", "num_commands", "commands_total")
META_ROW: Final = Checksum("meta", META, "sum", _all_but(META, "sum"))
SWEEP: Final = Checksum("sweep", SWEEPS, "sum", _all_but(SWEEPS, "sum", "progress_sum", *_PROGRESS))
PROGRESS: Final = Checksum("progress", SWEEPS, "progress_sum", ("id", *_PROGRESS))
TRIAL: Final = Checksum("trial", TRIALS, "sum", _all_but(TRIALS, "sum"))
REPORT: Final = Checksum("report", REPORTS, "sum", _all_but(REPORTS, "sum"))
HOLDER: Final = Checksum("holder", HOLDERS, "sum", _all_but(HOLDERS, "sum"))
COMMAND: Final = Checksum("command", EVENTS, "sum", _all_but(EVENTS, "sum"))
EVENT: Final = Checksum("event", EVENTS, "sum", _all_but(EVENTS, "sum", "id"))


def added(total: int, *sums: int) -> int:
    """A total with more sums."""
    return (total + sum(sums) + _HALF) % (2 * _HALF) - _HALF
