"""Checks the write-ahead log of a SQLite file before SQLite opens it.

SQLite reads the log up to the first frame whose checksum does not match, because a power failure
may have interrupted the last commit. It drops all later frames in silence, also if one bit in the
middle is damaged. A bad frame before a later commit of the same log is damage, because each commit
is flushed before the next one begins. `newest` finds out about the last commit.

A log may come from a stranger, so it may be huge, with little data and long holes: one frame at a
time is in memory, and holes are skipped.

The format is described at https://www.sqlite.org/fileformat2.html#walformat.
"""

import errno
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.files.folder import Folder

_MASK: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct(">8I")  # magic, version, page size, count, salts, checksums
_FRAME: Final = struct.Struct(">6I")  # page, pages after a commit or 0, salts, checksums
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}  # byte order of the checksums' words
_LOOKS: Final = 3
_PAUSE_SECONDS: Final = 0.02


def find_damage(ledger: Path) -> str | None:
    """What is damaged in the log of a SQLite file; None if nothing, or if there is no log."""
    folder = Folder(ledger.parent)
    found = None
    # While another process writes, a reader may see half a frame. Damage stays.
    for look in range(_LOOKS):
        try:
            with folder.open(f"{ledger.name}-wal") as log:
                last, found = found, _damage_of(log.fileno())
        except FileNotFoundError:
            return None
        if found is None or (look and found != last):
            return None
        time.sleep(_PAUSE_SECONDS)
    return found


def _damage_of(log: int) -> str | None:
    if os.fstat(log).st_size < _HEADER.size + _FRAME.size:
        return None
    header = os.pread(log, _HEADER.size, 0)
    magic, _, page_size, _, *salts, one, two = _HEADER.unpack(header)
    order = _MAGIC.get(magic)
    checksum = order and _checksum(header[:24], order, (0, 0))
    if order is None or not _is_page_size(page_size) or checksum != (one, two):
        return "the header of its log (-wal) has another checksum"
    bad = None
    is_over = False
    for number, (_, frame) in enumerate(_frames(log, page_size)):
        page, commit, *found, one, two = _FRAME.unpack_from(frame)
        is_current = found == salts
        if bad is None:
            content = frame[:8] + frame[_FRAME.size :]
            checksum = _checksum(content, order, checksum or (0, 0)) if is_current else None
            bad = None if page and checksum == (one, two) else number
        elif is_current and is_over:
            return f"frame {bad + 1} of its log (-wal) has another checksum"
        is_over |= bad is not None and is_current and commit != 0
    return None


@dataclass(frozen=True)
class LoggedPages:
    """The pages in a log.

    Args:
        page_size: bytes of each; num_pages: of the file, after the log was applied.
        places: number of a page and the place of its content in the log, the newest one last.
    """

    page_size: int
    num_pages: int
    places: list[tuple[int, int]]


def committed_pages(log: int, page_size: int, *, sound: bool) -> LoggedPages:
    """The pages in a log that may be damaged.

    A frame is sound if its checksum continues the one that the frame before it states. Frames after
    the last commit are left out.

    Args:
        log: its descriptor; page_size: of the ledger, used if the log's header has none.
        sound: leave out pages of frames that are not sound; rows in them may be.
    """
    header = os.pread(log, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return LoggedPages(page_size, 0, [])
    magic, _, stated_size, _, *stated_salts, one, two = _HEADER.unpack(header)
    page_size = stated_size if _is_page_size(stated_size) else page_size
    if not _is_page_size(page_size):
        return LoggedPages(page_size, 0, [])
    is_whole = _checksum(header[:24], _MAGIC.get(magic, "<"), (0, 0)) == (one, two)
    salts = stated_salts if is_whole else None
    found: list[tuple[int, int]] = []
    num_committed = 0
    num_pages = 0
    for place, frame in _frames(log, page_size):
        page, commit, *rest = _FRAME.unpack_from(frame)
        salts = salts or rest[:2]  # those of the first frame, if the header is damaged
        content = frame[:8] + frame[_FRAME.size :]
        expected = [_checksum(content, order, (one, two)) for order in _MAGIC.values()]
        one, two = rest[2:]
        if not sound or (rest[:2] == salts and (one, two) in expected and page):
            found.append((page, place + _FRAME.size))
            num_committed = len(found) if commit else num_committed
            num_pages = max(num_pages, commit)
    return LoggedPages(page_size, num_pages, found[:num_committed])


def next_data(file: int, place: int) -> int | None:
    """Where the data at a place of an open file, or after a hole there, begins; None at its end."""
    try:
        return os.lseek(file, place, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _frames(log: int, page_size: int) -> Iterator[tuple[int, bytes]]:
    """Place and content of the frames of a log. Zeros are no frame; after some, holes are skipped.

    The numbers of the frames before the first bad one are right.
    """
    size = _FRAME.size + page_size
    place = _HEADER.size
    while len(frame := os.pread(log, size, place)) == size:
        yield place, frame
        place += size
        if frame.count(0) == size:
            data = next_data(log, place)
            if data is None:
                return
            place += (data - place) // size * size


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0


def _checksum(data: bytes, order: str, seed: tuple[int, int]) -> tuple[int, int]:
    one, two = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
