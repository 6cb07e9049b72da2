"""The tables. Rows of child tables carry the id of their sweep.

If you change a table, raise VERSION, add a step to `migrations`, and add a file to
`tests/automl/ledger/released`.
"""

from typing import Final

import sqlalchemy as sa

VERSION: Final = 2
STOP_REQUESTED: Final = 1  # bit of `stop_requested`: end the sweep
NEW_COMMANDS: Final = 2  # bit of `stop_requested`: the controller has not seen all commands
METADATA: Final = sa.MetaData()

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_Big = sa.BigInteger()


def _sweep(primary_key: bool = True) -> sa.Column[int]:
    return sa.Column(
        "sweep", _Id, sa.ForeignKey("sweeps.id"), primary_key=primary_key, autoincrement=False
    )


def _key(name: str) -> sa.Column[int]:
    return sa.Column(name, _Big, primary_key=True, autoincrement=False)


META = sa.Table(
    "meta", METADATA, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text)
)

SWEEPS = sa.Table(
    "sweeps",
    METADATA,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("environment", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False, default=0.0),
    sa.Column("stop_requested", sa.Integer, nullable=False, default=0),
)

TRIALS = sa.Table(
    "trials",
    METADATA,
    _sweep(),
    _key("number"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("params", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("failure", sa.Text),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("peak_memory_bytes", _Big),
    sa.Column("started", sa.Double),
    sa.Column("ended", sa.Double),
    sa.Column("details", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    _sweep(),
    _key("trial"),
    _key("attempt"),
    sa.Column("begun", sa.Double, nullable=False),
    sa.Column("worker", sa.Text),
    sa.Column("ended", sa.Double),
    sa.Column("ending", sa.Text),
    sa.Column("failure", sa.Text),
    sa.Column("message", sa.Text),
    sa.Column("seconds", sa.Double),
    sa.Column("peak_memory_bytes", _Big),
    sqlite_with_rowid=False,
)

REPORTS = sa.Table(
    "reports",
    METADATA,
    _sweep(),
    _key("trial"),
    _key("attempt"),
    _key("sequence"),
    sa.Column("step", _Big, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("sweep", _Id, sa.ForeignKey("sweeps.id"), nullable=False, index=True),
    sa.Column("trial", _Big),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("recorded", sa.Double, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
)

HOLDERS = sa.Table(
    "holders",
    METADATA,
    _sweep(),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", _Big, nullable=False),
    sa.Column("process_started", sa.Double),
    sa.Column("heartbeat", sa.Double, nullable=False),
    sa.Column("fence", _Big, nullable=False),
    sa.Column("held", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("commits", _Big, nullable=False, server_default="0"),
)
