"""The columns of a sweep's row that change while it runs. They have a sum of their own.

Other processes change them too (a request to stop, a new command), so each change reads the row,
verifies it and writes it in one transaction that has locked it.
"""

import sqlalchemy as sa

from .rows import Row
from .schema import SWEEPS
from .statements import READ_PROGRESS, WRITE_PROGRESS, keyed
from .store_errors import damaged
from .sums import PROGRESS


def read_progress(connection: sa.Connection, store: str, sweep: int) -> Row:
    """Lock and read the columns.

    Raises:
        StoreError: they are damaged, or the sweep was deleted.
    """
    found = connection.execute(READ_PROGRESS, {"_id": sweep}).mappings().first()
    if found is None:
        raise damaged(store, f"the row of sweep {sweep} is missing")
    row = dict(found)
    if not PROGRESS.holds(row):
        raise damaged(store, f"the state of sweep {sweep} has another checksum")
    return row


def write_progress(connection: sa.Connection, row: Row) -> None:
    """Store the columns, as `read_progress` returned them, with changes."""
    connection.execute(WRITE_PROGRESS, keyed(SWEEPS, PROGRESS.seal(row)))
