"""The process that fits and asks surrogates, so that the server needs no torch.

    python -m automl.studio.surrogate_process STORE

It reads one question a line as JSON, and writes one answer a line. The studio starts it when
somebody asks, and ends it when nobody has asked for a while.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.effects import Insight, insights_of
from automl.report.recommendation import recommended
from automl.report.record import Record
from automl.report.success import SuccessModel

from . import suggestion_reason, understanding
from .child import serve

GROWTH: Final = 1.15  # models are fitted again at this factor of ended trials
MIN_ENDED: Final = 4  # trials, for a model of failures
NICE: Final = 10  # trials may train on the same cores


@dataclass(frozen=True)
class _Fitted:
    """The models of a sweep, and from how many ended trials they were made."""

    record: Record
    insights: Sequence[Insight]
    success: SuccessModel | None
    num_ended: int


class Answers:
    """Answers questions about the sweeps of a store.

    Args:
        ledger: open for reading.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, _Fitted] = {}

    def __call__(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `{"ask": "insights" | "recommended" | "predict" | "contours" | "why", ...}`."""
        if question["ask"] == "why":
            return suggestion_reason.reason(self._ledger, question["sweep"], question["trial"])
        if question["ask"] == "recommended":
            advice = recommended(Record.read(self._ledger, question["sweep"]))
            return {"recommended": advice.to_dict() if advice else None}
        fitted = self._fitted(question["sweep"])
        if question["ask"] == "insights":
            return understanding.insights(fitted.record, fitted.insights, fitted.success)
        if question["ask"] == "contours":
            found: dict[str, Any] = understanding.between(fitted.record, fitted.insights, question)
            return found
        return _predict(fitted, question["params"])

    def _fitted(self, sweep: str) -> _Fitted:
        record = Record.read(self._ledger, sweep)
        ended = sum(trial.state.finished for trial in record.trials)
        known = self._known.get(sweep)
        settled = record.snapshot.state != "running"
        if known and known.record.confirmation != record.confirmation:
            known = None
        if known and known.num_ended <= ended < known.num_ended * (1 if settled else GROWTH) + 1:
            return known
        failed = sum(trial.failure is not None for trial in record.trials)
        has_both = 0 < failed < ended and ended >= MIN_ENDED
        success = SuccessModel(record) if has_both else None
        self._known = {sweep: _Fitted(record, insights_of(record), success, ended)}
        return self._known[sweep]


def _predict(fitted: _Fitted, params: Mapping[str, Any]) -> dict[str, Any]:
    space = fitted.record.space
    chosen = space.complete(params)
    if not space.legal(chosen):
        raise UsageError("this configuration breaks a rule of the space")
    metrics, unit = [], space.encode([chosen])
    for insight in fitted.insights:
        low, middle, high = insight.model.another_run(unit)
        found = {"metric": insight.model.metric, "low": low, "middle": middle, "high": high}
        metrics.append(found | {"doubt": insight.doubt})
    failures = fitted.success.of_kinds(chosen) if fitted.success else {}
    return {"params": dict(chosen), "metrics": metrics, "failures": failures}


def main() -> None:
    """Answer until standard input ends."""
    os.nice(NICE)
    serve(Answers(Ledger.open(sys.argv[1], readonly=True)), threads=1)


if __name__ == "__main__":
    main()
