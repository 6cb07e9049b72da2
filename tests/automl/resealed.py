"""Changes rows of a ledger behind its back, and gives them their sums."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from automl.ledger.records import seal
from automl.ledger.schema import LEASES, META


def change_leases(engine: sa.Engine, **values: Any) -> None:
    """Change every row of `leases`."""
    with engine.execution_options(write=True).begin() as connection:
        for row in connection.execute(sa.select(LEASES).with_for_update()).mappings().all():
            plain = {key: value for key, value in row.items() if key != "sum"}
            sealed = seal("lease", plain | values)
            where = LEASES.c.sweep == row["sweep"]
            connection.execute(LEASES.update().where(where).values(sealed))


def change_version(engine: sa.Engine, value: str) -> None:
    """Give the schema another version."""
    with engine.execution_options(write=True).begin() as connection:
        row = seal("meta", {"key": "schema_version", "value": value})
        connection.execute(META.update().where(META.c.key == "schema_version").values(row))
