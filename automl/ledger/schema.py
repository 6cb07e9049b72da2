"""The tables. Rows of child tables carry the id of their sweep. Every row has a checksum (`sums`).

If you change a table, raise VERSION, add a step to `migrations`, and add a file to
`tests/automl/ledger/released`.
"""

from typing import Final

import sqlalchemy as sa

VERSION: Final = 3
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


def _number(name: str) -> sa.Column[int]:
    """A number that a migration adds: a sum, a total of sums, or a count."""
    return sa.Column(name, _Big, nullable=False, server_default="0")


META = sa.Table(
    "meta",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text),
    _number("sum"),
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
    _number("num_commands"),
    _number("commands_total"),
    _number("sum"),
    _number("progress_sum"),
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
    _number("num_reports"),
    _number("reports_total"),
    _number("sum"),
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
    _number("sum"),
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
    _number("previous"),
    _number("sum"),
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
    _number("commits"),
    _number("num_trials"),
    _number("trials_total"),
    _number("num_events"),
    _number("last_event"),
    _number("sum"),
)
