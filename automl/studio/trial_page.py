"""One trial as its page shows it: its curves, attempts, events, logs and files, as plain data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from automl.core import (
    Begun,
    Command,
    Ended,
    Moved,
    Noted,
    Proposed,
    SweepEvent,
    ranking,
)
from automl.core.text import origin_of, violation
from automl.errors import UsageError
from automl.report.page import curves
from automl.report.sweep_data import OF_AGENTS, SweepData, in_words
from workers.protocol import LOGS, log_name

if TYPE_CHECKING:
    from automl.ledger import Ledger

MAX_POINTS: Final = 2000  # of a curve
MAX_LOG_BYTES: Final = 1 << 18  # of one answer
_LOG: Final = re.compile(r"attempt-(\d+)-rank-(\d+)\.log")


def describe(ledger: Ledger, view: SweepData, number: int) -> dict[str, Any]:
    """Everything on the page of a trial.

    Raises:
        UsageError: there is no such trial.
    """
    if number >= len(view.snapshot.trials):
        raise UsageError(f"sweep {view.name} has no trial {number}")
    trial = ledger.trials(view.name)[number]
    records = [one for one in ledger.read(view.name) if one.event.trial == number]
    events = [(one.recorded, one.event) for one in records]
    details = trial.facts
    return {
        **trial.summary(),
        "values": view.values(trial),
        "values_from": [
            ranking.origin(trial, goal, view.snapshot.constraints) for goal in view.snapshot.goals
        ],
        "violation": violation(trial, view.snapshot),
        "started": trial.started,
        "ended": trial.ended,
        "traceback": str(details.pop("traceback", "")),
        "memory_by_module_bytes": details.pop("memory_by_module_bytes", None),
        "estimated_memory_bytes": details.get("estimated_memory_bytes"),
        "details": details,
        "num_reports": len(trial.reports),
        "curves": curves(trial, None, MAX_POINTS),
        "events": [line for at, event in events if (line := _event(at, event))],
        "logs": logs(ledger, view.name, number),
    }


def logs(ledger: Ledger, sweep: str, number: int) -> list[dict[str, Any]]:
    """The logs of a trial's ranks on this machine."""
    folder = ledger.files(sweep) / "trials" / str(number) / LOGS
    try:
        names = folder.names()
    except OSError:
        return []
    matches = [match for name in names if (match := _LOG.fullmatch(name))]
    found = [{"attempt": int(match[1]), "rank": int(match[2])} for match in matches]
    return sorted(found, key=lambda one: (one["attempt"], one["rank"]))


def read_log(
    ledger: Ledger, sweep: str, number: int, attempt: int, rank: int, offset: int | None
) -> dict[str, Any]:
    """A part of a log.

    Args:
        offset: the first byte; None for the end of the log.

    Returns:
        `text`, `begin` and `end` in bytes, and whether there was `more`.
    """
    folder = ledger.files(sweep) / "trials" / str(number) / LOGS
    try:
        with folder.open(log_name(attempt, rank)) as file:
            size = file.seek(0, 2)
            begin = max(size - MAX_LOG_BYTES, 0) if offset is None else min(max(offset, 0), size)
            file.seek(begin)
            data = file.read(MAX_LOG_BYTES)
    except OSError as error:
        raise UsageError(
            f"trial {number} has no log of attempt {attempt}, rank {rank} on this machine"
        ) from error
    if begin + len(data) < size and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    end = begin + len(data)
    text = data.decode("utf-8", "replace")
    return {"text": text, "begin": begin, "end": end, "more": end < size}


def _event(recorded: float, event: SweepEvent) -> dict[str, Any]:
    """An event as a line: when, what, and why; empty if it is in the curves already."""
    words, message = "", ""
    match event:
        case Proposed():
            words = f"proposed by {origin_of(event)}"
        case Begun():
            words = f"attempt {event.attempt} began"
        case Ended():
            cause = f" ({event.failure.replace('_', ' ')})" if event.failure else ""
            words = f"attempt {event.outcome.attempt} ended: {event.outcome.ending}{cause}"
            words, message = f"{words}, the trial is {event.state}", event.message
        case Moved():
            words, message = f"the trial is {event.state}", event.reason
        case Noted():
            words, message = event.kind, event.message
        case Command() if event.kind not in OF_AGENTS:
            words = f"{event.by or 'somebody'}: {in_words(event)}"
    return {"recorded": recorded, "words": words, "message": message} if words else {}
