"""The newest record of each sweep, in a small file beside a SQLite file: `FILE-head`.

If the last frame of SQLite's log (-wal) is damaged, SQLite takes it for a commit that a power
failure interrupted, and drops it in silence. The head tells the two apart: it is written after each
commit that was acknowledged. It may be behind the ledger (it is not flushed at each commit), never
ahead.

A sweep has 32 bytes at 32 times its id: number and sum of its newest record, and a sum of both.
Zeros mean that nothing is known. Of a sweep whose id is too large for the file, nothing is known.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import Final

from workers.files.folder import Folder

from .records import Place, checksum
from .store_errors import DamageError

HEAD: Final = "-head"  # ending of the file's name
_SLOT: Final = struct.Struct("<qqq8x")
_MAX_BYTES: Final = 1 << 24


class Head:
    """The file beside a ledger. A write that fails is ignored: the record is in the ledger.

    Args:
        ledger: the SQLite file; None for a server, which keeps no such file.
    """

    def __init__(self, ledger: Path | None) -> None:
        self._folder = Folder(ledger.parent) if ledger else None
        self._name = f"{ledger.name}{HEAD}" if ledger else ""
        self._file: int | None = None

    def write(self, sweep: int, place: Place) -> None:
        """Note the newest record of a sweep, after it was committed."""
        if self._folder is None or not 0 <= sweep < _MAX_BYTES // _SLOT.size:
            return
        data = _SLOT.pack(*place, checksum("head", sweep, *place)) if place.number else b""
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._folder.open_descriptor(self._name, "+")
            os.pwrite(self._file, data.ljust(_SLOT.size, b"\0"), sweep * _SLOT.size)

    def read(self) -> dict[int, Place | None]:
        """The newest record by id of sweep; None if what is written there is damaged.

        Read it before the ledger, which may grow meanwhile.

        Raises:
            StoreError: the file is larger than any of ours, or a link is in its place.
        """
        if self._folder is None:
            return {}
        try:
            data = self._folder.read(self._name, _MAX_BYTES)
        except FileNotFoundError:
            return {}
        found: dict[int, Place | None] = {}
        for begin in range(0, len(data), _SLOT.size):
            slot = data[begin : begin + _SLOT.size]
            if any(slot):
                sweep = begin // _SLOT.size
                number, total, sealed = _SLOT.unpack(slot.ljust(_SLOT.size, b"\0"))
                is_sound = sealed == checksum("head", sweep, number, total)
                found[sweep] = Place(number, total) if is_sound else None
        return found

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


def check_place(known: Place | None, last: Place, name: str) -> None:
    """Check that a log whose last record is `last` has the one that is known to be the newest.

    Raises:
        DamageError: it was cut short, or is another log.
    """
    if known and (known.number > last.number or (known.number == last.number and known != last)):
        raise DamageError(f"the last records of sweep {name!r} are missing")
