"""What is damaged in a database: the chain of every log, the leases, the cached states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from automl.errors import StoreError

from .head import check_place
from .lease import read_leases
from .reader import Sweep, chunks, last_place, sweeps
from .records import BEGINNING, Place, decoded
from .schema import LEASES, RECORDS, SNAPSHOTS
from .snapshots import is_sound
from .store_errors import (
    DamageError,
    translate_decoding_errors,
    translate_errors,
)


def damage_in(connection: sa.Connection, name: str, known: Mapping[int, Place | None]) -> list[str]:
    """What is damaged in a database, after every row was read.

    Args:
        known: the newest record that each sweep must have, by its id.
    """
    found: list[str] = []

    def look(read: Any) -> Any:
        try:
            with translate_errors(name), translate_decoding_errors(name):
                return read()
        except StoreError as error:
            found.append(_reason(error))
        return None

    catalogue = look(lambda: sweeps(connection)) or []
    look(lambda: read_leases(connection))
    for sweep in catalogue:
        look(lambda: _check_log(connection, sweep, known.get(sweep.id)))  # noqa: B023
    ids = [sweep.id for sweep in catalogue]
    if not found:
        found += [f"sweep {sweep} is missing" for sweep in known.keys() - set(ids)]
        for table in (RECORDS, LEASES, SNAPSHOTS):
            query = sa.select(table.c.sweep).where(table.c.sweep.not_in(ids)).limit(1)
            if connection.scalars(query).all():
                found.append(f"rows of {table.name!r} belong to a sweep that is missing")
    return found


def _check_log(connection: sa.Connection, sweep: Sweep, known: Place | None) -> None:
    check_place(known, last_place(connection, sweep.id), sweep.name)
    for rows in chunks(connection, sweep, BEGINNING):
        decoded(rows)
    if not is_sound(connection, sweep.id):
        raise DamageError(f"the cached state of sweep {sweep.name!r} has another checksum")


def _reason(error: StoreError) -> str:
    cause = error.__cause__
    return str(cause) if isinstance(cause, DamageError) else str(error)
