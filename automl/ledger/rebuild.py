"""Makes whole sweeps of sound rows, and says what is missing."""

from collections import defaultdict
from typing import Any, Final

from automl.core import Trial
from automl.core.events import fold
from automl.errors import AutomlError
from workers.protocol import Metrics, Report

from . import sums
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


def rebuild(found: Rows) -> tuple[Rows, list[str]]:
    """The rows that make whole sweeps, and a sentence for each thing that is lost.

    A trial whose row is missing or old follows from its events and reports. Trials after one that
    is lost altogether are lost too, because trials are numbered without a gap.
    """
    kept: Rows = {name: {} for name in ("sweeps", "holders", "trials", "reports", "events")}
    lost: list[str] = []
    for key, sweep in sorted(found.get("sweeps", {}).items()):
        mine = {name: _of_sweep(rows, sweep["id"]) for name, rows in found.items()}
        _rebuild_sweep(key, sweep, mine, kept, lost)
    for (number,) in sorted(found.get("progress", {}).keys() - found.get("sweeps", {}).keys()):
        lost.append(f"the specification of sweep {number}, and so all of it")
    return kept, lost


def _of_sweep(rows: dict[tuple[Any, ...], Row], sweep: int) -> dict[tuple[Any, ...], Row]:
    return {key: row for key, row in rows.items() if row.get("sweep", row.get("id")) == sweep}


def _rebuild_sweep(
    key: tuple[Any, ...], sweep: Row, mine: Rows, kept: Rows, lost: list[str]
) -> None:
    name = f"sweep {sweep['name']!r}"
    progress = mine["progress"].get(key)
    if progress is None:
        lost.append(f"the state of {name}")
    changing = {column: (progress or _BEGINNING)[column] for column in _BEGINNING}
    kept["sweeps"][key] = sweep | changing
    holder = mine["holders"].get(key)
    if holder is None and mine["trials"]:
        lost.append(f"the controller's record of {name}")
    events = [mine["events"][number] for number in sorted(mine["events"])]
    chained = [row for row in events if row["kind"] != COMMAND]
    whole = _is_whole(chained, holder)
    if not whole:
        expected = f" of {holder['num_events']}" if holder else ""
        lost.append(f"events of {name}: {len(chained)}{expected} are kept")
    if progress and progress["num_commands"] > len(events) - len(chained):
        lost.append(f"commands to {name}: {len(events) - len(chained)} are kept")
    kept["events"] |= mine["events"]
    trials = _trials(sweep, mine, chained, holder, whole)
    if holder and len(trials) < holder["num_trials"]:
        lost.append(f"trials {len(trials)} to {holder['num_trials'] - 1} of {name}")
    kept["trials"] |= {(row["sweep"], row["number"]): row for row in trials}
    reports = {key: row for key, row in mine["reports"].items() if row["trial"] < len(trials)}
    kept["reports"] |= reports
    counts: dict[int, int] = defaultdict(int)
    for row in reports.values():
        counts[row["trial"]] += 1
    lost += [
        f"{row['num_reports'] - counts[row['number']]} reports of trial {row['number']} of {name}"
        for row in trials
        if row["num_reports"] > counts[row["number"]]
    ]
    if trials or events or holder:
        kept["holders"][key] = holder or _UNHELD | {"sweep": sweep["id"]}


def _is_whole(chained: list[Row], holder: Row | None) -> bool:
    last = 0
    for row in chained:
        if row["previous"] != last:
            return False
        last = row["sum"]
    return holder is not None and (len(chained), last) == (
        holder["num_events"],
        holder["last_event"],
    )


def _trials(
    sweep: Row, mine: Rows, chained: list[Row], holder: Row | None, whole: bool
) -> list[Row]:
    """The rows of the trials up to the first that is lost."""
    kept = {row["number"]: row for row in mine["trials"].values()}
    total = sums.added(0, *(row["sum"] for row in kept.values()))
    if holder is None or (len(kept), total) != (holder["num_trials"], holder["trials_total"]):
        for number, row in _folded(sweep["id"], chained, mine).items():
            if number not in kept or (whole and _differs(kept[number], row)):
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
