"""Changes rows of a ledger behind its back, and gives them their sums."""

from __future__ import annotations

from typing import Any

from automl.ledger.database import Database
from automl.ledger.schema import as_dict, seal, select


def change_leases(database: Database, **values: Any) -> None:
    """Change every row of `leases`."""
    with database.transaction(write=True) as connection:
        locking = " FOR UPDATE" if connection.is_server else ""
        for row in connection.execute(select("leases") + locking).fetchall():
            plain = {k: v for k, v in as_dict("leases", row).items() if k != "sum"}
            sealed = seal("leases", plain | values)
            changes = ", ".join(f"{name} = :{name}" for name in sealed)
            connection.execute(f"UPDATE leases SET {changes} WHERE sweep = :sweep", sealed)
