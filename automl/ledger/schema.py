"""The tables. The truth about a sweep is its records; every row has a checksum (`records`).

If you change a table, raise VERSION, add a step to `migrations`, and add a file to
`tests/automl/ledger/released`.
"""

from typing import Final

import sqlalchemy as sa

VERSION: Final = 4
METADATA: Final = sa.MetaData()

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_Big = sa.BigInteger()


def _sum() -> sa.Column[int]:
    return sa.Column("sum", _Big, nullable=False)


def _sweep() -> sa.Column[int]:
    return sa.Column("sweep", _Id, primary_key=True, autoincrement=False)


META = sa.Table(
    "meta",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    _sum(),
)

# The catalogue. A name is a sweep's name for people, `id` that in the other tables.
SWEEPS = sa.Table(
    "sweeps",
    METADATA,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("created", sa.Double, nullable=False),
    _sum(),
)

# The log of every sweep: rows are only added.
RECORDS = sa.Table(
    "records",
    METADATA,
    _sweep(),
    sa.Column("number", _Big, primary_key=True, autoincrement=False),
    sa.Column("trial", _Big),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("recorded", sa.Double, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("previous", _Big, nullable=False),
    _sum(),
    sa.Index("records_of_trial", "sweep", "trial"),
    sqlite_with_rowid=False,
)

# Who holds a sweep or held it last. `held` and `fence` decide; the rest is for those who watch.
LEASES = sa.Table(
    "leases",
    METADATA,
    _sweep(),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", _Big, nullable=False),
    sa.Column("process_started", sa.Double),
    sa.Column("heartbeat", sa.Double, nullable=False),
    sa.Column("fence", _Big, nullable=False),
    sa.Column("held", sa.Integer, nullable=False),
    sa.Column("commits", _Big, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("num_trials", _Big, nullable=False),
    sa.Column("closed", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    _sum(),
)

# A cache of the state of a sweep after one of its records. Anybody may delete it.
SNAPSHOTS = sa.Table(
    "snapshots",
    METADATA,
    _sweep(),
    sa.Column("number", _Big, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
    _sum(),
)
