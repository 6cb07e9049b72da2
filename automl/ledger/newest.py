"""A second record of the newest commit of each sweep, in a small file beside a SQLite file.

If the last frame of SQLite's log is damaged, SQLite takes it for a commit that a power failure
interrupted, and drops it in silence. This file tells the two apart: it is written after each commit
that was acknowledged. It may be behind the ledger (it is not flushed at each commit), never ahead.

A sweep has 64 bytes at 64 times its id: fence, number and last event of its controller's newest
commit; number and total of its commands; each half with a sum. Zeros mean that nothing is known.
The file has at most 16 MiB: of a sweep with a larger id nothing is known.
"""

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from workers.files.folder import Folder

from .rows import Row

_HALF: Final = struct.Struct("<qqq8s")
_SLOT: Final = 2 * _HALF.size
_LARGEST: Final = 1 << 24  # bytes of the file


@dataclass(frozen=True)
class Acknowledged:
    """What was acknowledged of a sweep.

    Args:
        commit: fence, number of the commit and sum of the last event; None if unknown.
        commands: their number and total; None if unknown.
        legible: whether both halves have their sums.
    """

    commit: tuple[int, int, int] | None
    commands: tuple[int, int] | None
    legible: bool

    def missing(self, sweep: Row, holder: Row | None) -> str | None:
        """What a ledger lacks of it; None if nothing."""
        kept = (holder["fence"], holder["commits"], holder["last_event"]) if holder else (0, 0, 0)
        if self.commit and (kept[:2] < self.commit[:2] or _differs(kept, self.commit)):
            return f"the last commits of sweep {sweep['name']!r} are missing"
        if self.commands and sweep["num_commands"] < self.commands[0]:
            return f"the last commands of sweep {sweep['name']!r} are missing"
        return None


class NewestCommits:
    """The file beside a ledger. It is opened when it is first written to.

    A write that fails is ignored: the commit is in the ledger.
    """

    def __init__(self, ledger: Path) -> None:
        self._folder = Folder(ledger.parent)
        self._name = f"{ledger.name}-newest"
        self._file: int | None = None

    def note_commit(self, sweep: int, fence: int, commits: int, last_event: int) -> None:
        """Record a commit of a sweep's controller, after it was stored."""
        self._write(sweep, 0, (fence, commits, last_event))

    def note_commands(self, row: Mapping[str, Any]) -> None:
        """Record the commands of a sweep, after they were stored; `row` is the sweep's."""
        self._write(row["id"], 1, (row["num_commands"], row["commands_total"], 0))

    def forget(self, sweep: int) -> None:
        """Forget a sweep, before it is deleted."""
        if _has_slot(sweep) and self._folder.is_file(self._name):
            with contextlib.suppress(OSError):
                os.pwrite(self._opened(), bytes(_SLOT), sweep * _SLOT)

    def read(self) -> Mapping[int, Acknowledged]:
        """What is known, by id of sweep. Read it before the ledger, which may grow meanwhile.

        Raises:
            StoreError: the file is larger than any of ours, or a link is in its place.
        """
        try:
            return _Slots(self._folder.read(self._name, _LARGEST))
        except FileNotFoundError:
            return {}

    def flush(self) -> None:
        """Wait until the file is on the disk."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file)

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, sweep: int, half: int, values: tuple[int, int, int]) -> None:
        if not _has_slot(sweep):
            return
        data = _HALF.pack(*values, _sum(sweep, half, values))
        with contextlib.suppress(OSError):
            os.pwrite(self._opened(), data, sweep * _SLOT + half * _HALF.size)

    def _opened(self) -> int:
        if self._file is None:
            self._file = self._folder.open_descriptor(self._name, "+")
        return self._file


class _Slots(Mapping[int, Acknowledged]):
    """The content of a file. A slot is decoded when it is asked for: most readers ask for one."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __getitem__(self, sweep: int) -> Acknowledged:
        found = _read_slot(sweep, self._slot(sweep)) if _has_slot(sweep) else None
        if found is None:
            raise KeyError(sweep)
        return found

    def __iter__(self) -> Iterator[int]:
        num_slots = (len(self._data) + _SLOT - 1) // _SLOT
        return (sweep for sweep in range(num_slots) if any(self._slot(sweep)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _slot(self, sweep: int) -> bytes:
        return self._data[sweep * _SLOT : (sweep + 1) * _SLOT]


def _has_slot(sweep: int) -> bool:
    """Whether the file has room for a sweep. Its id may be any number: the store holds it."""
    return 0 <= sweep < _LARGEST // _SLOT


def _read_slot(sweep: int, data: bytes) -> Acknowledged | None:
    data = data.ljust(_SLOT, b"\0")
    if not any(data):
        return None
    first, second = (_read_half(sweep, half, data) for half in (0, 1))
    legible = first is not None and second is not None
    commit = first if first and any(first) else None
    commands = second[:2] if second and any(second) else None
    return Acknowledged(commit, commands, legible)


def _read_half(sweep: int, half: int, data: bytes) -> tuple[int, int, int] | None:
    """The values of a half; zeros if it was never written, None if it is damaged."""
    *values, found = _HALF.unpack_from(data, half * _HALF.size)
    known = (values[0], values[1], values[2])
    if not any(known) and not any(found):
        return known
    return known if found == _sum(sweep, half, known) else None


def _sum(sweep: int, half: int, values: tuple[int, int, int]) -> bytes:
    text = ascii((sweep, half, *values)).encode()
    return blake2b(text, digest_size=8, person=b"newest").digest()


def _differs(kept: tuple[int, int, int], known: tuple[int, int, int]) -> bool:
    return kept[:2] == known[:2] and kept != known
