"""Changes who holds the sweeps of a ledger, behind its back."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from automl.ledger.database import SWEEPS, Database


def change_leases(database: Database, **values: Any) -> None:
    """Change the row of every sweep."""
    with database.transaction(write=True) as connection:
        connection.execute(sa.update(SWEEPS).values(values))
