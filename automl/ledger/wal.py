"""Checks the write-ahead log of a SQLite file before SQLite opens it.

SQLite reads the log up to the first frame whose checksum does not match, because a power failure
may have interrupted the last commit. It drops all later frames in silence, also if one bit in the
middle is damaged. A bad frame before a later commit of the same log is damage, because each commit
is flushed before the next one begins. `newest` finds out about the last commit.

The format is described at https://www.sqlite.org/fileformat2.html#walformat.
"""

import struct
import time
from collections.abc import Iterator
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
                last, found = found, _damage_of(log.read())
        except FileNotFoundError:
            return None
        if found is None or (look and found != last):
            return None
        time.sleep(_PAUSE_SECONDS)
    return found


def _damage_of(data: bytes) -> str | None:
    if len(data) < _HEADER.size + _FRAME.size:
        return None
    magic, _, page_size, _, *salts, one, two = _HEADER.unpack_from(data)
    order = _MAGIC.get(magic)
    checksum = order and _checksum(data[:24], order, (0, 0))
    if order is None or checksum != (one, two):
        return "the header of its log (-wal) has another checksum"
    bad = None
    is_over = False
    for number, frame in enumerate(_frames(data, page_size)):
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


def committed_pages(data: bytes, *, sound: bool) -> list[tuple[int, int, bytes]]:
    """Number, number of pages of the file, and content of the pages in a log that may be damaged.

    A frame is sound if its checksum continues the one that the frame before it states. Frames after
    the last commit are left out.

    Args:
        sound: leave out pages of frames that are not sound; rows in them may be.
    """
    if len(data) < _HEADER.size + _FRAME.size:
        return []
    magic, _, page_size, _, *salts, one, two = _HEADER.unpack_from(data)
    if not 512 <= page_size <= 65536:
        return []
    frames = [(frame, *_FRAME.unpack_from(frame)) for frame in _frames(data, page_size)]
    if _checksum(data[:24], _MAGIC.get(magic, "<"), (0, 0)) != (one, two) and frames:
        salts = list(frames[0][3:5])  # the header is damaged
    found: list[tuple[int, int, bytes]] = []
    num_committed = 0
    for frame, page, commit, *rest in frames:
        content = frame[:8] + frame[_FRAME.size :]
        expected = [_checksum(content, order, (one, two)) for order in _MAGIC.values()]
        one, two = rest[2:]
        if not sound or (rest[:2] == salts and (one, two) in expected and page):
            found.append((page, commit, frame[_FRAME.size :]))
            num_committed = len(found) if commit else num_committed
    size = max((commit for _, commit, _ in found), default=0)
    return [(page, size, content) for page, _, content in found[:num_committed]]


def _frames(data: bytes, page_size: int) -> Iterator[bytes]:
    size = _FRAME.size + page_size
    for place in range(_HEADER.size, len(data) - size + 1, size):
        yield data[place : place + size]


def _checksum(data: bytes, order: str, seed: tuple[int, int]) -> tuple[int, int]:
    one, two = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
