"""Which outcomes are failures, and which failures are retried."""

from __future__ import annotations

import math
from typing import Any

from objectives import make_spec, run_inline

import automl
from automl.ledger import Ledger
from workers.context import Context


def test_each_failure_is_what_it_is_and_is_not_tried_again(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory", "too large")
        if trial.number == 2:
            return {"loss": math.nan}
        if trial.number == 3:
            trial.report(step=1, accuracy=0.5)
            return {"lost": 1.0}
        if trial.number == 4:
            raise ValueError("a bug")
        if trial.number == 5:
            return {"loss": "low"}
        if trial.number == 6:
            raise MemoryError
        trial.report(step=1, loss=-math.inf)  # only what is final decides
        return {"loss": 1.0}

    snapshot = run_inline(ledger, make_spec(trials=8), objective)
    kinds = [trial.failure for trial in snapshot.trials]
    expected = [
        "out_of_memory",
        "non_finite",
        "missing_metric",
        "crashed",
        "missing_metric",
        "out_of_memory",
    ]
    assert kinds == [None, *expected, None]
    assert all(trial.attempts == 1 for trial in snapshot.trials)
    assert "'loss'" in snapshot.trials[3].message
    assert "accuracy" in snapshot.trials[3].message
    assert "lost" in snapshot.trials[3].message
    assert "ValueError: a bug" in snapshot.trials[4].message
    assert snapshot.best is not None
    assert snapshot.best.number == 0
