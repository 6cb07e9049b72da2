"""Turns the tables of schemas 1 to 3 into the events of a log."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from automl.core import (
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SweepEvent,
    SweepSpec,
    TrialState,
)
from automl.core.ranks import ranks_of
from search_spaces.validation import plain_params
from workers.protocol import Ending, Outcome, Params, Report, Started

Row = Mapping[str, Any]
_KINDS: Final[Mapping[str, type]] = {
    "Begun": Begun,
    "Started": Started,
    "Moved": Moved,
    "Noted": Noted,
    "Leased": Leased,
}
# Keys that decided something, and are fields of an outcome now.
_FACTS: Final = {
    "worker_lost": "worker_lost",
    "worker_leaves": "worker_spent",
    "gpu_lost": "gpu_lost",
    "out_of_memory_on": "gpus_full",
    "failed_at": "failed_at",
    "exception": "exception",
    "node_kind": "node_kind",
    "held": "held",
    "estimated_memory_bytes": "estimated_memory_bytes",
}
_OF_OUTCOME: Final = {field.name for field in fields(Outcome)}


def log_of(
    sweep: Row, trials: Iterable[Row], events: Iterable[Row], reports: Iterable[Row]
) -> Iterator[tuple[float, SweepEvent]]:
    """The events of a sweep, each with when it was recorded (seconds since 1970).

    The number of a command is its place among these events, from 1; what refers to it by the
    identity that it had refers to that number. A report comes before the event that ended its
    attempt.

    Args:
        sweep: its row; trials, events, reports: its rows of these tables, events in order of `id`,
            reports in order of their keys.
    """
    spec = SweepSpec.from_dict(json.loads(sweep["spec"]))
    params = {row["number"]: plain_params(json.loads(row["params"])) for row in trials}
    waiting = _by_trial(reports)
    numbers: dict[int, int] = {}  # of commands, by their old identity
    recorded, count = sweep["created"], 1
    yield recorded, Created(json.loads(sweep["spec"]), json.loads(sweep["environment"]))
    for row in events:
        recorded, event = row["recorded"], _event(row, params, numbers, spec)
        if isinstance(event, Ended | Moved | Begun):
            attempt = _attempt_before(event)
            for report in _taken(waiting[event.trial], attempt):
                count += 1
                yield recorded, report
        count += 1
        if isinstance(event, Command):
            numbers[row["id"]] = count
        yield recorded, event
    for _, left in sorted(waiting.items()):
        yield from ((recorded, report) for report in left)
    if sweep["state"] != "running" and count > 1:
        yield recorded, Closed(sweep["state"], at=sweep["seconds"])


def _by_trial(reports: Iterable[Row]) -> defaultdict[int, list[Report]]:
    found: defaultdict[int, list[Report]] = defaultdict(list)
    for row in reports:
        metrics = {key: float(value) for key, value in json.loads(row["metrics"]).items()}
        key = (row["trial"], row["attempt"], row["sequence"])
        found[row["trial"]].append(Report(*key, row["step"], metrics, row["seconds"]))
    return found


def _attempt_before(event: Ended | Moved | Begun) -> float:
    """The last attempt whose reports come before an event."""
    if isinstance(event, Begun):
        return event.attempt - 1
    return event.outcome.attempt if isinstance(event, Ended) else float("inf")


def _taken(waiting: list[Report], attempt: float) -> list[Report]:
    """Take the reports up to an attempt out of a list, which is in order."""
    count = sum(report.attempt <= attempt for report in waiting)
    found, waiting[:] = waiting[:count], waiting[count:]
    return found


def _event(
    row: Row, params: Mapping[int, Params], numbers: Mapping[int, int], spec: SweepSpec
) -> SweepEvent:
    kind, data = row["kind"], json.loads(row["payload"])
    if kind == "Wished":
        return Command(**data | {"sent": row["recorded"]})
    if kind in ("Proposed", "Answered"):
        command = data.pop("wish", None)
        data["command"] = None if command is None else numbers.get(command, 0)
        if kind == "Answered":
            return Answered(**data)
        return Proposed(**data | {"params": params.get(row["trial"], data.get("params", {}))})
    if kind == "Ended":
        state = TrialState(data["state"])
        return Ended(**data | {"outcome": _outcome(data["outcome"]), "state": state})
    if kind == "Moved":
        data["state"] = TrialState(data["state"])
    event: SweepEvent = _KINDS[kind](**data)
    if isinstance(event, Begun):
        return replace(event, slots=_slots(spec, params.get(event.trial, {})))
    return event


def _outcome(data: Mapping[str, Any]) -> Outcome:
    details = dict(data["details"])
    facts = {_FACTS[key]: details.pop(key) for key in _FACTS if key in details}
    metrics = {key: float(value) for key, value in data["metrics"].items()}
    found = {**data, **facts, "details": details, "metrics": metrics}
    known = {key: value for key, value in found.items() if key in _OF_OUTCOME}
    return Outcome(**known | {"ending": Ending(data["ending"])})


def _slots(spec: SweepSpec, params: Params) -> int:
    """How many slots an attempt took."""
    if spec.workload is None:
        return ranks_of(spec.ranks, params)
    from workers.parallel import num_ranks

    return num_ranks(params, spec.fixed)
