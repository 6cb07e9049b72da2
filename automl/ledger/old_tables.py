"""Reads the tables of schemas 1 to 3, in which events, reports and trials had tables of their own.

Schema 1 had no sums, and the parameters of a proposal only in the table of trials. In events, a
command was called "Wished" and its identity "wish"; facts that decide were keys of `details`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from automl.core import SweepSpec
from automl.core.events import Closed, Command, Created, SweepEvent
from automl.core.ranks import ranks_of
from automl.core.trial import TrialState
from automl.errors import UsageError
from search_spaces.validation import plain_params
from workers.parallel import num_ranks
from workers.protocol import Ending, Outcome, Report, StopRequest

from .records import checksum
from .sqlite_files import Connection
from .store_errors import DamageError, translated

Row = dict[str, Any]
OldTables = dict[str, list[Row]]
_COMMAND: Final = "Wished"
_KINDS: Final[Mapping[str, Callable[..., SweepEvent]]] = {
    **{kind.__name__: kind for kind in get_args(SweepEvent)},
    _COMMAND: Command,
}
# Columns under each sum of schema 3, in order.
_SUMS: Final = {
    "meta": "key value",
    "sweep": "id name spec environment created",
    "progress": "id state seconds stop_requested num_commands commands_total",
    "trial": "sweep number state params source metrics failure message attempts seconds "
    "peak_memory_bytes started ended details num_reports reports_total",
    "report": "sweep trial attempt sequence step seconds metrics",
    "command": "id sweep trial kind recorded payload previous",
    "event": "sweep trial kind recorded payload previous",
    "holder": "sweep host pid process_started heartbeat fence held status commits num_trials "
    "trials_total num_events last_event",
}
_ORDERS: Final = {
    "meta": "key",
    "sweeps": "id",
    "holders": "sweep",
    "trials": "sweep, number",
    "events": "id",
    "reports": "sweep, trial, attempt, sequence",
}
# Keys of an outcome's details that are fields now.
_FIELDS: Final = {
    "worker_lost": "worker_lost",
    "worker_leaves": "worker_spent",
    "gpu_lost": "gpu_lost",
    "out_of_memory_on": "gpus_full",
    "failed_at": "failed_at",
    "exception": "exception",
    "node_kind": "node_kind",
    "held": "held",
    "estimated_memory_bytes": "estimated_memory_bytes",
    "artifact_bytes": "artifact_bytes",
}


def read(connection: Connection, name: str) -> OldTables:
    """The tables of a database.

    Raises:
        StoreError: a row of schema 3 has another sum, or is missing.
    """
    found = {}
    for table, order in _ORDERS.items():
        rows = connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
        names = _names(rows)
        found[table] = [dict(zip(names, row, strict=True)) for row in rows]
    version = next(row["value"] for row in found["meta"] if row["key"] == "schema_version")
    if version == "3":
        with translated(name):
            _verify(found)
    return found


def _names(rows: Any) -> list[str]:
    """The columns of a cursor, of SQLite or of SQLAlchemy."""
    return list(rows.keys()) if hasattr(rows, "keys") else [one[0] for one in rows.description]


def events(found: OldTables, sweep: Row) -> Iterator[tuple[float, SweepEvent]]:
    """The log of a sweep, each event with the time at which it was recorded.

    A report comes before the event that ends its attempt.
    """
    spec = json.loads(sweep["spec"])
    yield sweep["created"], Created(spec, json.loads(sweep["environment"]))
    slots = _slots(SweepSpec.from_dict(spec))
    params = {row["number"]: _params(row) for row in _of(found, "trials", sweep)}
    reports: dict[tuple[int, int], list[Report]] = defaultdict(list)
    for row in _of(found, "reports", sweep):
        report = _report(row)
        reports[report.trial, report.attempt].append(report)
    attempts: dict[int, int] = {}
    numbers: dict[int | None, int] = {}  # of records, by identity of a command
    number, recorded = 1, sweep["created"]
    for row in _of(found, "events", sweep):
        content, recorded = json.loads(row["payload"]), row["recorded"]
        if row["kind"] == "Proposed":
            content["params"] = plain_params(content.get("params") or params[row["trial"]])
        elif row["kind"] == "Begun":
            attempts[row["trial"]] = content["attempt"]
            content["slots"] = slots(params[row["trial"]])
        elif row["kind"] in ("Ended", "Moved"):
            for report in reports.pop((row["trial"], attempts.get(row["trial"], 0)), ()):
                yield recorded, report
                number += 1
        number += 1
        if row["kind"] == _COMMAND:
            numbers[row["id"]] = number
        yield recorded, _event(row["kind"], content, numbers)
    for rest in reports.values():  # of attempts that have not ended
        yield from ((recorded, report) for report in rest)
    if sweep["state"] in ("finished", "failed"):
        yield recorded, Closed(sweep["state"], at=sweep["seconds"])


def typed_facts(details: Mapping[str, Any]) -> Row:
    """Fields of an outcome for its details of before: `details` and the facts that decide."""
    found = {_FIELDS[key]: value for key, value in details.items() if key in _FIELDS}
    rest = {key: value for key, value in details.items() if key not in _FIELDS}
    if found.get("failed_at") is not None:
        found["failed_at"] = float(found["failed_at"])
    return {"details": rest, **{key: value for key, value in found.items() if value is not None}}


def request_fields(word: str) -> Row:
    """Fields of a lease for what an agent was asked: "stop", "pause", "held" or nothing."""
    request = {"stop": StopRequest.STOP, "pause": StopRequest.PAUSE, "held": StopRequest.PAUSE}
    return {"asked": request.get(word), "held": word == "held"}


def _event(kind: str, content: Row, numbers: Mapping[int | None, int]) -> SweepEvent:
    if kind in ("Proposed", "Answered"):
        command = numbers.get(content.pop("wish", None))
        content["command"] = 0 if command is None and kind == "Answered" else command
    if kind == "Leased":
        content |= request_fields(content.get("asked", ""))
    if kind in ("Ended", "Moved"):
        content["state"] = TrialState(content["state"])
    if kind == "Ended":
        outcome = content["outcome"]
        outcome |= typed_facts(outcome.get("details") or {})
        outcome["metrics"] = {key: float(value) for key, value in outcome["metrics"].items()}
        content["outcome"] = Outcome(**outcome | {"ending": Ending(outcome["ending"])})
    return _KINDS[kind](**content)


def _slots(spec: SweepSpec) -> Callable[[Row], int]:
    """How many slots a trial of a sweep takes, by its parameters."""

    def count(params: Row) -> int:
        if spec.workload is None:
            return ranks_of(spec.ranks, params)
        try:
            return num_ranks(params, spec.fixed)
        except UsageError:
            return 1

    return count


def _of(found: OldTables, table: str, sweep: Row) -> list[Row]:
    return [row for row in found[table] if row["sweep"] == sweep["id"]]


def _params(row: Row) -> Row:
    return dict(plain_params(json.loads(row["params"])))


def _report(row: Row) -> Report:
    metrics = {key: float(value) for key, value in json.loads(row["metrics"]).items()}
    return Report(
        row["trial"], row["attempt"], row["sequence"], row["step"], metrics, row["seconds"]
    )


def _verify(found: OldTables) -> None:
    """Check the sums of schema 3, the chains of events, and that no row is missing."""
    _check(found["meta"], "meta")
    _check(found["sweeps"], "sweep")
    _check(found["sweeps"], "progress", "progress_sum")
    _check(found["holders"], "holder")
    _check(found["trials"], "trial")
    _check(found["reports"], "report")
    for sweep in found["sweeps"]:
        both = _of(found, "events", sweep)
        commands = [row for row in both if row["kind"] == _COMMAND]
        chained = [row for row in both if row["kind"] != _COMMAND]
        _check(commands, "command")
        _check(chained, "event")
        last = 0
        for row in chained:
            if row["previous"] != last:
                raise DamageError(f"an event before event {row['id']} is missing")
            last = row["sum"]
        trials, reports = _of(found, "trials", sweep), _of(found, "reports", sweep)
        holder = next(iter(_of(found, "holders", sweep)), {"num_trials": 0, "num_events": 0})
        counts = (len(trials), len(chained), len(commands), len(reports))
        num_reports = sum(row["num_reports"] for row in trials)
        known = (holder["num_trials"], holder["num_events"], sweep["num_commands"], num_reports)
        if counts != known:
            raise DamageError(f"rows of sweep {sweep['name']!r} are missing")


def _check(rows: list[Row], label: str, target: str = "sum") -> None:
    names = _SUMS[label].split()
    for row in rows:
        if row[target] != checksum(label, *(row[name] for name in names)):
            raise DamageError(f"a row of the {label}s of before has another checksum")
