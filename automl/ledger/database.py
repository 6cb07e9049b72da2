"""The database, and the records in it: SQLite in a file or in memory, or a server, by SQLAlchemy.

A file is created whole or not at all: it is written under another name, then renamed. A file that
is empty, damaged or of another schema is refused, because it may hold somebody's results.

The log of a sweep are events as JSON, under numbers without a gap, each with a CRC32. A metric that
is not finite is stored as the text "nan", "inf" or "-inf".
"""

import fcntl
import json
import os
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, NamedTuple, TypeVar, get_args
from urllib.parse import quote

import sqlalchemy as sa

from automl.core import Command, Ended, SweepEvent, SweepState, TrialState
from automl.core.arguments import check_name, compact_json
from automl.errors import AutomlError, StoreError, needs
from search_spaces.values import plain_params
from workers.files import flush
from workers.protocol import Cause, Ending, Outcome, StopRequest

FILE_NAME: Final = "ledger.sqlite3"
IN_MEMORY: Final = "sqlite://"
VERSION: Final = 9  # of the schema: raise it if a table changes
MAX_BUSY_SECONDS: Final = 30.0  # how long to wait for a lock of SQLite
MAX_RETRY_SECONDS: Final = 60.0  # how long to wait for a server that restarts
_PAUSE_SECONDS: Final = 0.25
_SCHEMA_LOCK: Final = 0x6175746F6D6C
_PASSWORD: Final = re.compile("password|passwd", re.IGNORECASE)
_DAMAGED: Final = (
    "malformed",
    "not a database",
    "decode to UTF-8",
    "unsupported file format",
    "no such column",
    "too big",
)
# A part of the database's message, and the words for a person.
_EXPLANATIONS: Final = {
    "locked": "locked by another process for more than {busy:g} s",
    "busy": "locked by another process for more than {busy:g} s",
    "disk is full": "the disk is full; what was recorded before is kept",
    "disk I/O error": "the disk cannot be read or written ({message}); "
    "what was recorded before is kept",
    "readonly database": "it cannot be written to, the file or its folder is read-only",
}
T = TypeVar("T")
Sweep = sa.Row[Any]  # of `SWEEPS`, with `now`, the time on the clock of its `heartbeat`


def _columns(kind: Any, *names: str, **options: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, **{"nullable": False, **options}) for name in names]


_SCHEMA: Final = sa.MetaData()
META: Final = sa.Table(
    "meta", _SCHEMA, *_columns(sa.Text, "key", primary_key=True), *_columns(sa.Text, "value")
)
# The catalogue. `last` is the number of the sweep's newest record. The others say who holds it or
# held it last: `held` and `fence` decide, the rest is for those who watch.
SWEEPS: Final = sa.Table(
    "sweeps",
    _SCHEMA,
    *_columns(sa.BigInteger, "id", primary_key=True, autoincrement=False),
    *_columns(sa.Text, "name", unique=True),
    *_columns(sa.Double, "created"),
    *_columns(sa.BigInteger, "last"),
    *_columns(sa.Double, "heartbeat", "seconds", default=0.0),
    *_columns(sa.BigInteger, "pid", "fence", "held", "commits", "num_trials", default=0),
    *_columns(sa.Text, "host", default=""),
    *_columns(sa.Text, "closed", default="interrupted"),
    *_columns(sa.Text, "status", default="{}"),
    *_columns(sa.Double, "process_started", nullable=True),
)
# The log of every sweep: rows are only added. `sum` is of all other values of a row.
RECORDS: Final = sa.Table(
    "records",
    _SCHEMA,
    *_columns(sa.BigInteger, "sweep", "number", primary_key=True, autoincrement=False),
    *_columns(sa.BigInteger, "trial", nullable=True),
    *_columns(sa.Text, "kind"),
    *_columns(sa.Double, "recorded"),
    *_columns(sa.Text, "payload"),
    *_columns(sa.BigInteger, "sum"),
    sqlite_with_rowid=False,
)


class DamageError(ValueError):
    """What was read is damaged; the message says what."""


class NoStoreError(StoreError):
    """There is no ledger at this place yet."""


class HeldError(StoreError):
    """Another process holds the sweep.

    Args:
        brief: it does so for a moment only.
    """

    def __init__(self, message: str, *, brief: bool) -> None:
        super().__init__(message)
        self.brief = brief


class Database:
    """A database that is open; from any thread.

    Args:
        name: for messages.
        engine: makes its connections, and keeps them.
    """

    def __init__(self, name: str, engine: sa.Engine) -> None:
        self.name = name
        self.is_server = engine.dialect.name != "sqlite"
        # In memory there is only one connection.
        self._alone = RLock() if name == IN_MEMORY else nullcontext()
        sa.event.listen(engine, "begin", _begin)
        self._engines = [engine.execution_options(write=write) for write in (False, True)]

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[sa.Connection]:
        """A transaction, which sees one state of the database; an error rolls it back."""
        with self._alone, self._engines[write].begin() as connection:
            yield connection

    def connection(self) -> sa.Connection:
        """A connection: while one is open, SQLite closes the others in less time than a commit."""
        return self._engines[0].connect()

    def run(self, action: Callable[[sa.Connection], T], *, write: bool = False) -> T:
        """What an action does in a transaction; again while a server restarts.

        Raises:
            StoreError: the database cannot be read or written, or what it holds is damaged.
        """

        deadline = time.monotonic() + MAX_RETRY_SECONDS
        with translated(self.name):
            while True:
                try:
                    with self.transaction(write=write) as connection:
                        return action(connection)
                except sa.exc.DBAPIError as error:
                    passes = isinstance(error, sa.exc.OperationalError)
                    passes |= error.connection_invalidated
                    if not (self.is_server and passes) or time.monotonic() > deadline:
                        raise
                time.sleep(_PAUSE_SECONDS)

    def clock(self, connection: sa.Connection) -> float:
        """Seconds since 1970 on the clock that all users of the database share."""
        if not self.is_server:
            return time.time()
        return float(
            connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
        )

    def sweeps(self, connection: sa.Connection, *where: Any, lock: bool = False) -> Sequence[Sweep]:
        """The rows of sweeps, the newest last; if they are locked, other writers of them wait."""
        now = sa.literal(self.clock(connection)).label("now")
        query = sa.select(SWEEPS, now).where(*where).order_by(SWEEPS.c.id)
        found = connection.execute(query.with_for_update() if lock else query).all()
        for sweep in found:
            check_name(sweep.name)  # it names a folder
        return found

    def sweep(self, connection: sa.Connection, known: Sweep, *, lock: bool = False) -> Sweep:
        """The row of a sweep as it is now."""
        found = self.sweeps(connection, SWEEPS.c.id == known.id, lock=lock)
        if not found:
            raise DamageError(f"the row of sweep {known.name!r} is missing, or it was deleted")
        return found[0]

    def lock_schema(self, connection: sa.Connection) -> None:
        """Keep others from creating tables or sweeps until the transaction ends."""
        if self.is_server:  # a file has one writer at a time
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))

    def version(self) -> str | None:
        """The version of the schema; None if there is none."""
        with self.transaction() as connection:
            if not sa.inspect(connection).has_table("meta"):
                return None
            return connection.scalar(sa.select(META.c.value).where(META.c.key == "schema_version"))

    def create_tables(self) -> None:
        """Make the tables, unless there are some."""
        with self.transaction(write=True) as connection:
            self.lock_schema(connection)
            if not sa.inspect(connection).has_table("meta"):
                _SCHEMA.create_all(connection)
                row = sa.insert(META).values(key="schema_version", value=str(VERSION))
                connection.execute(row)

    def close(self) -> None:
        """Close every connection."""
        self._engines[0].dispose()


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction. A writer of SQLite locks at once: a reader cannot wait to become one."""
    write = connection.get_execution_options()["write"]
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
    elif not write:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def locate(store: str | os.PathLike[str]) -> tuple[str, Path | None, Path | None]:
    """Where a store is.

    Returns:
        The URL of a server or of memory, "" for a file; the SQLite file, None for the others; the
        folder, None in memory.
    """
    text = os.fspath(store)
    if text == IN_MEMORY:
        return text, None, None
    if "://" not in text:
        file = Path(text).absolute() / FILE_NAME
        return "", file, file.parent
    url = _parsed(text)
    if url.get_backend_name() == "sqlite":
        if not url.database:
            raise StoreError(f"a SQLite store is a folder or sqlite:///FILE, got {text!r}")
        file = Path(url.database).absolute()
        return "", file, file.parent
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")  # older SQLAlchemy has another default
    return url.render_as_string(hide_password=False), None, Path(".automl").absolute()


def shown(url: str | os.PathLike[str]) -> str:
    """URL of a server without its password, and without its options, which may hold one."""
    return _parsed(os.fspath(url)).set(query={}).render_as_string(hide_password=True)


def refuse_password(store: str) -> None:
    """Refuse a URL with a password: it would be visible in `ps` and in the shell's history.

    Raises:
        StoreError: there is a password before the host or in the options, or the URL is malformed.
    """
    url = _parsed(store) if "://" in store else None
    if url and (url.password is not None or any(_PASSWORD.search(key) for key in url.query)):
        raise StoreError(
            "a store's URL must not hold a password, which everybody on this machine could read: "
            "put it into the environment variable PGPASSWORD or into ~/.pgpass"
        )


def _parsed(url: str) -> sa.URL:
    """The parts of a URL; an error does not repeat it, because it may hold a password."""
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise StoreError(
            "the store must be a folder or a database URL such as postgresql://host/name"
        ) from error


def open_database(store: str | os.PathLike[str], *, create: bool, readonly: bool) -> Database:
    """Open a database and check its schema.

    Raises:
        NoStoreError: there is none.
        StoreError: the store is damaged, of another schema, or cannot be reached.
    """
    url, file, _ = locate(store)
    name = url if url == IN_MEMORY else str(file or shown(store))
    with translated(name):
        if file is None:
            if url == IN_MEMORY:
                engine = _sqlite(":memory:", sa.pool.StaticPool)
            else:
                engine = sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)
            database = Database(name, engine)
            if create or url == IN_MEMORY:
                database.create_tables()
        else:
            if create and not file.exists():
                _create_file(file)
            if not file.exists():
                raise NoStoreError(f"there is no store at {file}")
            if file.stat().st_size == 0:
                raise damaged(name, "it is empty, it holds no ledger")
            database = _on_file(file, mode(file, readonly=readonly))
        version = database.version()
    if version is None:
        text = f"{name} is no ledger of automl: it has no schema version. It was left as it is"
        raise NoStoreError(text) if file is None else StoreError(text)
    if version != str(VERSION):
        raise StoreError(
            f"{name} has schema version {version[:20]!r} and this automl reads only {VERSION}: "
            "name another store with --store, or use the automl that wrote this one"
        )
    return database


def mode(file: Path, *, readonly: bool) -> str:
    """URI options to open a file. In a read-only folder without a log, the file cannot change."""
    if os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
        return "mode=ro" if readonly else "mode=rw"
    return "mode=ro" if Path(f"{file}-wal").exists() else "mode=ro&immutable=1"


def _on_file(file: Path, options: str) -> Database:
    uri = f"file:{quote(str(file))}?{options}"
    return Database(str(file), _sqlite(uri, sa.pool.NullPool))


def _sqlite(place: str, pool: type[sa.Pool]) -> sa.Engine:
    return sa.create_engine(
        IN_MEMORY, creator=lambda: _connect(place), poolclass=pool, hide_parameters=True
    )


def _connect(place: str) -> sqlite3.Connection:
    """A connection to SQLite on which nobody but `_begin` begins a transaction."""
    connection = sqlite3.connect(
        place, timeout=MAX_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
    )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA trusted_schema=OFF")  # the file may come from a stranger
    return connection


def _create_file(file: Path) -> None:
    """Make an empty ledger, unless another process makes one."""
    folder = file.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks lock no folders
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            draft = file.with_name(f".{file.name}.draft")
            draft.unlink(missing_ok=True)  # of a process that was killed
            with closing(_connect(f"file:{quote(str(draft))}?mode=rwc")) as connection:
                connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
            with closing(_on_file(draft, "mode=rw")) as database:
                database.create_tables()
            flush(draft)
            for end in ("-wal", "-shm"):  # of a deleted ledger: SQLite would replay its log
                file.with_name(file.name + end).unlink(missing_ok=True)
            draft.replace(file)
            flush(folder)
    finally:
        os.close(lock)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn errors of a database, of files and of what they hold into StoreErrors.

    Args:
        name: of the store: a SQLite file, or the URL of a server.
    """
    try:
        yield
    except StoreError:
        raise
    except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
        raise _explained(name, str(getattr(error, "orig", None) or error)) from error
    except ModuleNotFoundError as error:
        text = f"{name}: this kind of store needs the package {error.name!r}"
        postgres = needs("a store that is a URL", "psycopg", "postgres")
        raise StoreError(postgres if error.name == "psycopg" else text) from error
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror or error}") from error
    except (
        AutomlError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        reason = f"a record cannot be read: {type(error).__name__}: {str(error)[:200]}"
        known = isinstance(error, DamageError)
        raise damaged(name, str(error) if known else reason) from error


def damaged(name: str, reason: str) -> StoreError:
    """The error for a damaged store. It tells what can be done.

    Args:
        name: the SQLite file, or the URL of a server.
    """
    kind = "backup of the server" if "://" in name else "copy of the file"
    return StoreError(
        f"{name} is damaged ({reason}). It was left as it is: put back a {kind}, "
        "or name another store with --store"
    )


def _explained(name: str, message: str) -> StoreError:
    if any(word in message for word in _DAMAGED):
        return damaged(name, message)
    known = (words for sign, words in _EXPLANATIONS.items() if sign in message)
    words = next(known, "{message}").format(message=message.strip(), busy=MAX_BUSY_SECONDS)
    return StoreError(f"{name}: {words}")


Converters = Sequence[tuple[str, Callable[[Any], Any]]]
_CHUNK: Final = 1000  # records that are decoded at once


class LogRecord(NamedTuple):
    """An event of a sweep's log.

    Args:
        number: from 1, without gaps.
        recorded: seconds since 1970 on the clock of the store.
        sum: see `checksum`.
    """

    number: int
    recorded: float
    event: SweepEvent
    sum: int


def checksum(values: Iterable[Any]) -> int:
    """The CRC32 of the other values of a row as `ascii` writes them, which no Python changes."""
    return zlib.crc32(ascii(tuple(values)).encode())


def rows_of(sweep: Sweep, events: Iterable[SweepEvent]) -> list[dict[str, Any]]:
    """The rows of `RECORDS` for events after the newest record of a sweep."""
    found = []
    for number, event in enumerate(events, sweep.last + 1):
        kind = type(event).__name__
        values = (sweep.id, number, event.trial, kind, sweep.now, _payload(event))
        found.append(dict(zip(RECORDS.c.keys(), (*values, checksum(values)), strict=True)))
    return found


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the log of a sweep, whose row in `SWEEPS` is locked."""
    if rows:
        connection.execute(sa.insert(RECORDS), rows)
        mine = sa.update(SWEEPS).where(SWEEPS.c.id == rows[0]["sweep"])
        connection.execute(mine.values(last=rows[-1]["number"]))


def records_after(connection: sa.Connection, sweep: Sweep, number: int = 0) -> Iterator[LogRecord]:
    """The records of a log after a number, verified.

    Raises:
        DamageError: a row was changed, or is missing.
    """
    mine = sa.select(RECORDS).where(RECORDS.c.sweep == sweep.id, RECORDS.c.number > number)
    for rows in connection.execute(mine.order_by(RECORDS.c.number)).partitions(_CHUNK):
        for row in rows:
            number += 1
            if row.number != number:
                raise _missing(number, sweep)
            if checksum(row[:-1]) != row.sum:
                raise DamageError(f"record {number} of sweep {sweep.name!r} has another checksum")
        # All at once, in a third of the time.
        contents = json.loads(f"[{','.join([row.payload for row in rows])}]")
        for row, content in zip(rows, contents, strict=True):
            yield LogRecord(row.number, row.recorded, _event(row, content), row.sum)
    if number != sweep.last:
        raise _missing(number + 1, sweep)


def apply(state: SweepState, records: Iterable[LogRecord]) -> set[int]:
    """Apply records to a state; the numbers of the trials that changed."""
    applied = (state.apply(record.event, record.number) for record in records)
    return {trial.number for trial in applied if trial is not None}


def _missing(number: int, sweep: Sweep) -> DamageError:
    return DamageError(f"record {number} of sweep {sweep.name!r} is missing or out of order")


def _payload(event: SweepEvent) -> str:
    content = vars(event)
    if isinstance(event, Ended):
        content = {**content, "outcome": vars(event.outcome)}
    return compact_json(content)


def _event(row: Any, content: dict[str, Any]) -> SweepEvent:
    """The inverse of `_payload`; raises ValueError, KeyError or TypeError if it is damaged."""
    kind = _KINDS[row.kind]
    if kind is Command:
        content["sent"] = row.recorded
    event: SweepEvent = _made(kind, content, _CONVERTERS.get(row.kind, ()))
    return event


def _made(kind: Any, content: dict[str, Any], converters: Converters) -> Any:
    """An event or outcome with this content; frozen fields that are set one by one take longer.

    Args:
        converters: make the values that JSON does not have, such as tuples and enumerations.
    """
    if content.keys() != kind.__dataclass_fields__.keys():
        raise TypeError(f"a {kind.__name__} has other fields than {', '.join(content)}")
    for name, convert in converters:
        if content[name] is not None:
            content[name] = convert(content[name])
    made = object.__new__(kind)
    vars(made).update(content)
    return made


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _outcome(content: dict[str, Any]) -> Outcome:
    converters: Converters = [("ending", Ending), ("metrics", _floats), ("cause", Cause)]
    outcome: Outcome = _made(Outcome, content, converters)
    return outcome


_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(SweepEvent)}
_CONVERTERS: Final[Mapping[str, Converters]] = {
    "Report": [("metrics", _floats), ("seconds", float)],
    "Proposed": [("params", plain_params)],
    "Asked": [("params", plain_params)],
    "Ended": [("state", TrialState), ("outcome", _outcome)],
    "Moved": [("state", TrialState)],
    "Leased": [("asked", StopRequest)],
}
