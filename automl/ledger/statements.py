"""Statements of every commit. They are built once: to build one takes longer than to run it."""

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from .rows import Row
from .schema import EVENTS, HOLDERS, REPORTS, SWEEPS, TRIALS
from .sums import PROGRESS


def replacing(table: sa.Table, columns: Iterable[str]) -> sa.Update:
    """Replace columns of rows that are found by their primary key; see `keyed`."""
    where = [column == sa.bindparam(f"_{column.name}") for column in table.primary_key]
    keys = table.primary_key.columns
    values: dict[str, sa.BindParameter[Any]] = {
        name: sa.bindparam(name) for name in columns if name not in keys
    }
    return table.update().where(*where).values(values)


def keyed(table: sa.Table, row: Row) -> Row:
    """The parameters of `replacing` for a row."""
    return row | {f"_{column.name}": row[column.name] for column in table.primary_key}


INSERT_TRIALS: Final = TRIALS.insert()
INSERT_REPORTS: Final = REPORTS.insert()
INSERT_EVENTS: Final = EVENTS.insert()
REPLACE_TRIALS: Final = replacing(TRIALS, TRIALS.c.keys())
RENEW: Final = replacing(HOLDERS, HOLDERS.c.keys()).where(
    HOLDERS.c.fence == sa.bindparam("_fence"),
    HOLDERS.c.commits == sa.bindparam("_commits"),
    HOLDERS.c.held == 1,
)
WRITE_PROGRESS: Final = replacing(SWEEPS, (*PROGRESS.columns, PROGRESS.target))
READ_PROGRESS: Final = (
    sa.select(*(SWEEPS.c[name] for name in (*PROGRESS.columns, PROGRESS.target)))
    .where(SWEEPS.c.id == sa.bindparam("_id"))
    .with_for_update(key_share=True)
)
