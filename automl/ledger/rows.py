"""Converts trials, reports and events to table rows and back.

A metric that is not finite is stored as the text "nan", "inf" or "-inf".
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from automl.core import (
    Answered,
    Begun,
    Command,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    ReportLog,
    SweepEvent,
    Trial,
    TrialState,
)
from automl.core.text import json_data
from search_spaces.validation import plain_params
from workers.protocol import Ending, Metrics, Outcome, Params, Report, Started

Row = dict[str, Any]
COMMAND: Final = "Wished"  # stored names stay as they are: old ledgers must open
ANSWER: Final = "Answered"
_KINDS: Final[Mapping[str, type]] = {
    "Proposed": Proposed,
    "Begun": Begun,
    "Started": Started,
    "Ended": Ended,
    "Moved": Moved,
    "Noted": Noted,
    ANSWER: Answered,
    "Leased": Leased,
    COMMAND: Command,
}
_COMMAND_KEY: Final = "wish"
_DECODE: Final = json.JSONDecoder().raw_decode  # twice as quick as `json.loads`
_OF_TRIAL: Final = {field.name for field in dataclasses.fields(Trial)}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


class ReportRow(NamedTuple):
    """A row of `reports`: quicker to use than SQLAlchemy's, and there may be a million of them."""

    sweep: int
    trial: int
    attempt: int
    sequence: int
    step: int
    seconds: float
    metrics: str
    sum: int


def dumps(value: Any) -> str:
    """JSON text that every database and every parser accepts."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return json.dumps(json_data(value), allow_nan=False, separators=(",", ":"))


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs escaped, because databases refuse them."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def metrics_of(text: str) -> Metrics:
    """The inverse of `dumps` for metrics: every value is a float."""
    found, _ = _DECODE(text)
    return {key: float(value) for key, value in found.items()}


def params_of(text: str) -> Params:
    """The inverse of `dumps` for a configuration: a list is a tuple."""
    found: Params = json.loads(text)
    return plain_params(found) if "[" in text else found


def metrics_of_all(texts: Sequence[str]) -> list[Metrics]:
    """The same for many texts at once, which takes a third of the time.

    Raises:
        ValueError: a text is not the JSON of one value.
    """
    found = json.loads(f"[{','.join(texts)}]")
    if len(found) != len(texts):
        raise ValueError(f"there are {len(found)} values in {len(texts)} texts")
    return [{key: float(value) for key, value in metrics.items()} for metrics in found]


def trial_row(sweep: int, trial: Trial) -> Row:
    """The row of `trials` for a trial; its reports have rows of their own."""
    return {
        "sweep": sweep,
        "number": trial.number,
        "state": str(trial.state),
        "params": dumps(trial.params),
        "source": storable(trial.source),
        "metrics": dumps(trial.metrics),
        "failure": trial.failure,
        "message": storable(trial.message),
        "attempts": trial.attempts,
        "seconds": trial.seconds,
        "peak_memory_bytes": trial.peak_memory_bytes,
        "started": trial.started,
        "ended": trial.ended,
        "details": dumps(trial.details),
    }


def trial_of(row: Mapping[str, Any], reports: ReportLog) -> Trial:
    """The trial of a row of `trials`, with its reports."""
    decoded = {
        "state": TrialState(row["state"]),
        "params": params_of(row["params"]),
        "metrics": metrics_of(row["metrics"]),
        "details": json.loads(row["details"]),
        "reports": reports,
    }
    return Trial(**{key: value for key, value in row.items() if key in _OF_TRIAL} | decoded)


def report_row(sweep: int, report: Report) -> Row:
    """The row of `reports` for a report."""
    return {
        "sweep": sweep,
        "trial": report.trial,
        "attempt": report.attempt,
        "sequence": report.sequence,
        "step": report.step,
        "seconds": report.seconds,
        "metrics": dumps(report.metrics),
    }


def event_row(sweep: int, event: SweepEvent, recorded: float) -> Row:
    """The row of `events` for an event that is not a report."""
    payload = dataclasses.asdict(event)
    if isinstance(event, Proposed | Answered):
        payload[_COMMAND_KEY] = payload.pop("command")
    return {
        "sweep": sweep,
        "trial": event.trial,
        "kind": _NAMES[type(event)],
        "recorded": recorded,
        "payload": dumps(payload),
    }


def event_of(kind: str, payload: str) -> SweepEvent:
    """The inverse of `event_row`."""
    data = json.loads(payload)
    if kind in ("Proposed", ANSWER):
        data["command"] = data.pop(_COMMAND_KEY, None)
    if kind in ("Ended", "Moved"):
        data["state"] = TrialState(data["state"])
    if kind == "Ended":
        outcome = data["outcome"]
        metrics = {key: float(value) for key, value in outcome["metrics"].items()}
        data["outcome"] = Outcome(
            **{**outcome, "ending": Ending(outcome["ending"]), "metrics": metrics}
        )
    event: SweepEvent = _KINDS[kind](**data)
    return event


def command_of(payload: str) -> int | None:
    """Identity of the command that a stored proposal or answer follows; None if it has none."""
    command: int | None = json.loads(payload).get(_COMMAND_KEY)
    return command
