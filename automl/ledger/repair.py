"""Makes a sound ledger of what is sound in a damaged one and in its backups.

Of each sweep it keeps the longest log without a gap, and every later event that can follow.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from automl.core import Proposed, SweepState, TrialEvent
from automl.core.names import NAME
from automl.errors import AutomlError, StoreError, UsageError
from workers.files.disk import flush
from workers.files.folder import Folder

from .check import check, damage_of
from .database import locate
from .drafts import exclusive_draft
from .head import HEAD, Head
from .lease import new_lease
from .lock import FileLock
from .records import BEGINNING, Place, Row, chained, decoded, is_sound, seal
from .schema import as_dict, insert, select, write_empty
from .sqlite_files import BESIDE, MAX_SCHEMA_WORK, check_files, connect, connect_own
from .store_errors import BACKUP, existing_backups, translated

_MAX_STEP: Final = 1 << 40  # records that are skipped at once in search of a sound page


@dataclass(frozen=True)
class Repair:
    """What a repair has done.

    Args:
        damage: what was damaged; lost: what is in no file; aside: the folder of the damaged files,
            None if nothing was damaged.
    """

    damage: list[str]
    lost: list[str]
    aside: Path | None


@dataclass
class _Sound:
    """What is sound: rows of logs by sweep and number, and leases by sweep, the newest first."""

    rows: dict[int, dict[int, list[Row]]] = field(default_factory=lambda: defaultdict(dict))
    leases: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))


def repair(store: str | os.PathLike[str]) -> Repair:
    """Replace a damaged ledger by one with what is sound of it, of its -wal and of its backups.

    Raises:
        UsageError: the store is a server, which has backups of its own.
        StoreError: there is no store, a sweep is running in it, or nothing in it is sound.
    """
    _, file, folder = locate(store)
    if file is None or folder is None:
        raise UsageError("a server has no files to repair: restore a backup of the server")
    check_files(file, written=True)
    damage = check(store)
    if all(reason.startswith(f"{folder / BACKUP}{os.sep}") for reason in damage):
        return Repair(damage, [], None)
    with translated(str(file)), ExitStack() as stack:
        _hold_all(folder, stack)
        draft = stack.enter_context(exclusive_draft(file))
        found = _Sound()
        for source in (file, *existing_backups(file)):
            with suppress(OSError, ValueError, sqlite3.Error, AutomlError):
                _collect(source, found)
        lost = _write(draft, found, Head(file).read())
        if damage_of_draft := damage_of(draft):
            raise StoreError(f"the repaired ledger is not sound: {damage_of_draft[0]}")
        aside = _replace(file, draft)
    return Repair(damage, lost, aside)


def _hold_all(folder: Path, stack: ExitStack) -> None:
    """Hold the lock of every sweep.

    Raises:
        StoreError: somebody else holds one.
    """
    home = Folder(folder, "sweeps")
    for name in home.names():
        lock = FileLock(home / name, "controller.lock")
        stack.callback(lock.release)
        if not lock.acquire():
            raise StoreError(f"sweep {name!r} is in use: end it, then repair the store")


def _collect(source: Path, found: _Sound) -> None:
    """Add what is sound in a file.

    Its first page says where each table is. That of an empty ledger serves better, because it is
    sound: every ledger has the same tables in the same places, unless another program moved them.
    """
    with tempfile.TemporaryDirectory() as folder:
        image, empty = Path(folder) / "image", Path(folder) / "empty"
        write_empty(empty)
        for own_page in (False, True):
            for end in ("", "-wal"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{source}{end}", f"{image}{end}")
            with suppress(sqlite3.Error), closing(sqlite3.connect(image)) as connection:
                # Ends the reading of a schema that is far too large.
                connection.set_progress_handler(lambda: True, MAX_SCHEMA_WORK)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not own_page:
                _replace_first_page(image, empty)
            with (
                suppress(sqlite3.Error, ValueError, AutomlError),
                closing(connect(image, "mode=ro&immutable=1")) as opened,
            ):
                if _read(opened, found):
                    return


def _replace_first_page(image: Path, other: Path) -> None:
    with other.open("rb") as opened:
        header = bytearray(opened.read(4096))
    header[18:20] = b"\x01\x01"  # the file format without a -wal
    header[28:32] = (image.stat().st_size // 4096).to_bytes(4, "big")
    with image.open("r+b") as target:
        target.write(header)


def _read(connection: sqlite3.Connection, found: _Sound) -> bool:
    """Add the sound rows of an opened file; whether there are any."""
    connection.text_factory = lambda data: data.decode(errors="surrogateescape")
    with suppress(sqlite3.Error, ValueError):
        for values in connection.execute(select("leases")):
            lease = as_dict("leases", values)
            if lease == new_lease(**{k: v for k, v in lease.items() if k != "sum"}):
                found.leases[lease["sweep"]].append(lease)
    has_any = False
    sweep: int | None = 0
    while sweep is not None:
        for row in (*_rows(connection, sweep), *_rows_backwards(connection, sweep)):
            has_any = True
            known = found.rows[sweep].setdefault(row.number, [])
            if row not in known:
                known.append(row)
        sweep = _next_sweep(connection, sweep)
    return has_any


def _next_sweep(connection: sqlite3.Connection, sweep: int) -> int | None:
    query = "SELECT sweep FROM records WHERE sweep > ? ORDER BY sweep LIMIT 1"
    for step in (0, 1, 2, 4, 8, 16, 32, 64):
        with suppress(sqlite3.Error):
            row = connection.execute(query, (sweep + step,)).fetchone()
            return None if row is None else int(row[0])
    return None


def _rows(connection: sqlite3.Connection, sweep: int) -> Iterator[Row]:
    """The sound rows of a log, also those behind a page that is damaged."""
    query = select("records", "WHERE sweep = ? AND number > ? ORDER BY number")
    last, step = 0, 1
    while step < _MAX_STEP:
        try:
            for values in connection.execute(query, (sweep, last)):
                row = Row._make(values)
                last, step = row.number, 1
                if is_sound(row):
                    yield row
            return
        except (sqlite3.Error, OverflowError):
            last += step
            step *= 2


def _rows_backwards(connection: sqlite3.Connection, sweep: int) -> Iterator[Row]:
    """The sound rows before the end of a log, which a damaged page may hide from a scan."""
    query = select("records", "WHERE sweep = ? ORDER BY number DESC")
    with suppress(sqlite3.Error, OverflowError):
        yield from filter(is_sound, map(Row._make, connection.execute(query, (sweep,))))


def _write(draft: Path, found: _Sound, known: Mapping[int, Place | None]) -> list[str]:
    """Write a ledger of what was found; a sentence for each thing that is lost.

    Args:
        known: the newest record that each sweep had, by id.
    """
    write_empty(draft)
    lost: list[str] = []
    names: set[str] = set()
    with closing(connect_own(draft)) as connection, connection.transaction(write=True):
        for sweep in sorted(found.rows.keys() | known.keys()):
            sound = found.rows.get(sweep, {})
            rows, state = _log(sweep, sound)
            if not rows:
                lost.append(f"the specification of sweep {sweep}, and so all of it")
                continue
            name = _free_name(state.spec.name, names)
            place = known.get(sweep)
            newest = max(*sound, place.number if place else 0)
            if newest > len(rows):
                missing = newest - len(rows)
                lost.append(f"{missing} records of sweep {name!r}, the last of {newest}")
            row = {"id": sweep, "name": name, "created": rows[0].recorded}
            insert(connection, "sweeps", [seal("sweep", row)])
            insert(connection, "records", [row._asdict() for row in rows])
            leases = sorted(found.leases[sweep], key=lambda one: (one["fence"], one["commits"]))
            kept = leases[-1] if leases else {}
            kept = {name: kept[name] for name in kept if name not in ("sweep", "sum")}
            kept |= {"num_trials": len(state.trials), "closed": state.closed}
            kept["seconds"] = max(kept.get("seconds", 0.0), state.seconds)
            insert(connection, "leases", [new_lease(sweep, **kept)])
    if not names:
        raise StoreError(f"{draft.parent}: no sweep in it or in its backups is sound")
    flush(draft)
    return lost


def _log(sweep: int, sound: Mapping[int, list[Row]]) -> tuple[list[Row], SweepState]:
    """The longest log without a gap, and every later event of a trial that can follow it.

    Later commands and answers are lost: they name each other by numbers that would change.
    """
    rows: list[Row] = []
    state = SweepState()
    place = BEGINNING
    while row := _next(sound, place):
        try:
            state.apply(decoded([row])[0].event, row.number)
        except (AutomlError, ValueError, LookupError, TypeError, AttributeError):
            break
        rows.append(row)
        place = row.place
    for number in sorted(number for number in sound if rows and number > place.number):
        for record in decoded(sound[number][:1]):
            event = record.event
            if isinstance(event, Proposed) and (event.command or 0) > place.number:
                event = replace(event, command=None)
            with suppress(AutomlError):  # it cannot follow: an event before it is lost
                if isinstance(event, TrialEvent) and state.apply(event, len(rows) + 1):
                    rows += chained(sweep, rows[-1].place, [event], record.recorded)
    return rows, state


def _next(sound: Mapping[int, list[Row]], place: Place) -> Row | None:
    """The row that follows a place; None if there is none."""
    found = sound.get(place.number + 1, ())
    return next((row for row in found if row.previous == place.sum), None)


def _free_name(name: str, names: set[str]) -> str:
    name = name if NAME.fullmatch(name) else "sweep"
    number, free = 1, name
    while free in names:
        number += 1
        free = f"{name[:60]}-{number}"
    names.add(free)
    return free


def _replace(file: Path, draft: Path) -> Path:
    """Put a new file in the place of a damaged one; the folder with the damaged files."""
    name = f"damaged-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    aside = Folder(file.parent, BACKUP, name)
    aside.make()
    Folder(file.parent).copy(file.name, aside.path)
    flush(aside.path / file.name)
    beside = [file.with_name(f"{file.name}{end}") for end in (*BESIDE, HEAD)]
    for path in filter(Path.exists, beside):  # a log that stays would be applied to the new file
        path.rename(aside.path / path.name)
    flush(aside.path)
    draft.replace(file)
    flush(file.parent)
    return aside.path
