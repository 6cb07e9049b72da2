"""Log lines as JSON, one object a line, for programs that collect logs."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from automl.core import Snapshot, Trial, TrialState
from automl.core.arguments import json_data
from automl.core.text import goal_value

EVERY_SECONDS: Final = 60.0  # between two lines about the sweep, if no trial changes
_FIELDS: Final = "automl_fields"
_LOG: Final = logging.getLogger("automl.sweep")


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object with `time`, `level`, `logger`, `event` and its fields.

    `time` is in UTC (ISO 8601), `event` the message. An exception adds `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when,
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(json_data(line), ensure_ascii=True, default=str)


class SweepLog:
    """Logs each change of a trial's state, and the sweep itself; call it with each snapshot."""

    def __init__(self) -> None:
        self._state = ""
        self._logged_at = -EVERY_SECONDS

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what is new."""
        for trial, state in snapshot.transitions:
            self._log("trial", snapshot, **_trial_fields(snapshot, trial, state))
        now = time.monotonic()
        if snapshot.state != self._state or now - self._logged_at >= EVERY_SECONDS:
            self._state, self._logged_at = snapshot.state, now
            self._log(
                "sweep",
                snapshot,
                state=snapshot.state,
                seconds=snapshot.seconds,
                trials=len(snapshot.trials),
                slots=snapshot.num_slots,
                busy_slots=snapshot.busy_slots,
                waits_for=snapshot.waits_for,
            )

    def _log(self, event: str, snapshot: Snapshot, **fields: Any) -> None:
        _LOG.info(event, extra={_FIELDS: {"sweep": snapshot.sweep, **fields}})


def _trial_fields(snapshot: Snapshot, trial: Trial, state: TrialState) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "trial": trial.number,
        "state": str(state),
        "attempt": trial.attempts,
        "params": trial.params,
    }
    if state.finished:
        fields |= {
            "value": goal_value(trial, snapshot),
            "metrics": trial.metrics,
            "failure": trial.failure,
            "seconds": trial.seconds,
        }
    return fields | ({"message": trial.message} if trial.message else {})


@contextmanager
def json_log(stream: TextIO | None = None) -> Iterator[SweepLog]:
    """Log as JSON inside the block, what libraries warn of too; the block gets a `SweepLog`.

    Args:
        stream: None for standard error.
    """
    root = logging.getLogger()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    earlier, level = root.handlers[:], _LOG.level
    root.handlers[:] = [handler]
    _LOG.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield SweepLog()
    finally:
        logging.captureWarnings(False)
        _LOG.setLevel(level)
        root.handlers[:] = earlier
