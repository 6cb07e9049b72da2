"""Changes rows of a ledger behind its back, and gives them their sums."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from automl.ledger.audit import SWEEPS_TOTAL
from automl.ledger.schema import HOLDERS, META
from automl.ledger.sums import HOLDER, META_ROW


def change_holders(engine: sa.Engine, **values: Any) -> None:
    """Change every row of `holders`."""
    with engine.execution_options(write=True).begin() as connection:
        found = connection.execute(sa.select(HOLDERS).with_for_update()).mappings().all()
        for row in found:
            sealed = HOLDER.seal({**row, **values})
            where = HOLDERS.c.sweep == row["sweep"]
            connection.execute(HOLDERS.update().where(where).values(sealed))


def change_version(engine: sa.Engine, value: str) -> None:
    """Give the schema another version."""
    with engine.execution_options(write=True).begin() as connection:
        row = META_ROW.seal({"key": "schema_version", "value": value})
        connection.execute(META.update().where(META.c.key == "schema_version").values(row))


def make_version_1(connection: sa.Connection) -> None:
    """Turn the tables of a server into those of the first schema."""
    connection.execute(META.delete().where(META.c.key == SWEEPS_TOTAL))
    connection.execute(META.update().values(value="1"))
    new = {
        "meta": ["sum"],
        "sweeps": ["num_commands", "commands_total", "sum", "progress_sum"],
        "trials": ["num_reports", "reports_total", "sum"],
        "reports": ["sum"],
        "events": ["previous", "sum"],
        "holders": ["commits", "num_trials", "trials_total", "num_events", "last_event", "sum"],
    }
    for table, names in new.items():
        for name in names:
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN {name}"))
    connection.execute(sa.text("CREATE TABLE attempts (sweep BIGINT)"))
