"""Makes whole sweeps of sound rows, and says what is missing."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from automl.core import Trial
from automl.core.events import fold
from automl.errors import AutomlError
from workers.protocol import Metrics, Report

from . import sums
from .newest import Acknowledged
from .rows import COMMAND, Row, event_of, metrics_of, trial_row
from .salvage import Rows

_UNHELD: Row = {
    "host": "", "pid": 0, "process_started": None, "heartbeat": 0.0, "fence": 1, "held": 0,
    "status": "{}", "commits": 0, "num_trials": 0, "trials_total": 0, "num_events": 0,
    "last_event": 0, "sum": 0,
}  # fmt: skip
_COUNTED: Final = ("num_reports", "reports_total", "sum")
_BEGINNING: Row = {
    "state": "interrupted", "seconds": 0.0, "stop_requested": 0, "num_commands": 0,
    "commands_total": 0, "progress_sum": 0,
}  # fmt: skip


def rebuild(
    current: Rows, found: Rows, acknowledged: Mapping[int, Acknowledged]
) -> tuple[Rows, list[str]]:
    """The rows that make whole sweeps, and a sentence for each thing that is lost.

    A trial whose row is missing or old follows from its events and reports. Trials after one that
    is lost altogether are lost too, because trials are numbered without a gap.

    Args:
        current: the sound rows of the newest file; found: those and what older ones have besides.
        acknowledged: what was in the ledger, by id of sweep.
    """
    kept: Rows = {name: {} for name in ("sweeps", "holders", "trials", "reports", "events")}
    lost: list[str] = []
    for key, sweep in sorted(found.get("sweeps", {}).items()):
        mine = {name: _of_sweep(rows, sweep["id"]) for name, rows in found.items()}
        newest = {name: _of_sweep(rows, sweep["id"]) for name, rows in current.items()}
        _rebuild_sweep(key, newest, mine, kept, lost)
        known = acknowledged.get(sweep["id"])
        sums_of_events = {0, *(row["sum"] for row in mine["events"].values())}
        if known and known.commit and known.commit[2] not in sums_of_events:
            lost.append(f"the newest commits of sweep {sweep['name']!r}")
    for (number,) in sorted(found.get("progress", {}).keys() - found.get("sweeps", {}).keys()):
        lost.append(f"the specification of sweep {number}, and so all of it")
    return kept, lost


def _of_sweep(rows: dict[tuple[Any, ...], Row], sweep: int) -> dict[tuple[Any, ...], Row]:
    return {key: row for key, row in rows.items() if row.get("sweep", row.get("id")) == sweep}


def _rebuild_sweep(
    key: tuple[Any, ...], newest: Rows, mine: Rows, kept: Rows, lost: list[str]
) -> None:
    sweep = mine["sweeps"][key]
    name = f"sweep {sweep['name']!r}"
    for table, what in (("progress", "state"), ("holders", "controller's record")):
        if key not in newest.get(table, {}) and (key in mine[table] or table == "progress"):
            kept_one = "a backup's is kept" if key in mine[table] else "there is none"
            lost.append(f"the newest {what} of {name}: {kept_one}")
    progress = mine["progress"].get(key, _BEGINNING)
    kept["sweeps"][key] = sweep | {column: progress[column] for column in _BEGINNING}
    holder = mine["holders"].get(key)
    is_current = key in newest.get("holders", {})
    events = [mine["events"][number] for number in sorted(mine["events"])]
    chained = _in_order([row for row in events if row["kind"] != COMMAND])
    num_commands = len(events) - len(chained)
    linked = _is_linked(chained)
    if not linked or (holder and len(chained) < holder["num_events"]):
        lost.append(f"events of {name}: {len(chained)} are kept")
    if progress["num_commands"] > num_commands:
        lost.append(f"commands to {name}: {num_commands} are kept")
    commands = [row for row in events if row["kind"] == COMMAND]
    kept["events"] |= {(row["id"],): row for row in (*commands, *chained)}
    trials = _trials(mine, chained, holder if is_current else None, linked, sweep["id"])
    if not linked:
        old = [row["number"] for row in trials if _key(row) not in newest.get("trials", {})]
        lost += [f"the newest state of trial {number} of {name}" for number in old]
    if holder and len(trials) < holder["num_trials"]:
        lost.append(f"trials {len(trials)} to {holder['num_trials'] - 1} of {name}")
    kept["trials"] |= {_key(row): row for row in trials}
    reports = {key: row for key, row in mine["reports"].items() if row["trial"] < len(trials)}
    kept["reports"] |= reports
    counts = Counter(row["trial"] for row in reports.values())
    lost += [
        f"{row['num_reports'] - counts[row['number']]} reports of trial {row['number']} of {name}"
        for row in trials
        if row["num_reports"] > counts[row["number"]]
    ]
    if trials or events or holder:
        kept["holders"][key] = holder or _UNHELD | {"sweep": sweep["id"]}


def _key(trial: Row) -> tuple[Any, ...]:
    return trial["sweep"], trial["number"]


def _in_order(chained: list[Row]) -> list[Row]:
    """The events in the order of their chain, if it is whole; their identities say it too.

    An identity that was damaged may have given an event a second one.
    """
    chained = list({row["sum"]: row for row in chained}.values())
    after = {row["previous"]: row for row in chained}
    found: list[Row] = []
    last = 0
    while last in after and len(found) < len(chained):
        found.append(after[last])
        last = after[last]["sum"]
    if len(found) < len(chained):
        return chained
    numbers = sorted(row["id"] for row in chained)
    return [row | {"id": number} for number, row in zip(numbers, found, strict=True)]


def _is_linked(chained: list[Row]) -> bool:
    """Whether no event is missing before the last one."""
    before = [0, *(row["sum"] for row in chained)]
    return all(row["previous"] == last for row, last in zip(chained, before, strict=False))


def _trials(
    mine: Rows, chained: list[Row], holder: Row | None, linked: bool, sweep: int
) -> list[Row]:
    """The rows of the trials up to the first that is lost.

    Args:
        holder: the newest record of the controller; None if it is lost.
        linked: whether no event is missing before the last one.
    """
    kept = {row["number"]: row for row in mine["trials"].values()}
    total = sums.added(0, *(row["sum"] for row in kept.values()))
    if holder is None or (len(kept), total) != (holder["num_trials"], holder["trials_total"]):
        for number, row in _folded(sweep, chained, mine).items():
            if number not in kept or (linked and _differs(kept[number], row)):
                kept[number] = row
    count = next(number for number in range(len(kept) + 1) if number not in kept)
    return [kept[number] for number in range(count)]


def _differs(kept: Row, folded: Row) -> bool:
    return any(kept[name] != value for name, value in folded.items() if name not in _COUNTED)


def _folded(sweep: int, chained: list[Row], mine: Rows) -> dict[int, Row]:
    """The row of each trial as it follows from its events and reports."""
    reports: dict[tuple[int, int], list[Report]] = defaultdict(list)
    for row in sorted(mine["reports"].values(), key=lambda row: row["sequence"]):
        metrics: Metrics = metrics_of(row["metrics"])
        report = Report(
            row["trial"], row["attempt"], row["sequence"], row["step"], metrics, row["seconds"]
        )
        reports[row["trial"], row["attempt"]].append(report)
    trials: dict[int, Trial] = {}
    for row in chained:
        number = row["trial"]
        if number is None:
            continue
        before = trials.get(number)
        try:
            if before and row["kind"] in ("Ended", "Moved"):
                for report in reports.pop((number, before.attempts), []):
                    before = fold(before, report)
            after = fold(before, event_of(row["kind"], row["payload"]))
        except AutomlError:  # an event before it is lost
            continue
        if after is not None:
            trials[number] = after
    for (number, _), left in reports.items():
        for report in left:
            if number in trials:
                trials[number] = fold(trials[number], report) or trials[number]
    counts = {number: len(trial.reports) for number, trial in trials.items()}
    return {
        number: trial_row(sweep, trial)
        | {"num_reports": counts[number], "reports_total": 0, "sum": 0}
        for number, trial in trials.items()
    }
