"""The caveats of the summary and the report."""

from __future__ import annotations

from automl.core.goals import parse_goals
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState
from automl.report.caveats import caveats
from search_spaces import Float, Space


def warnings(*metrics: dict[str, float]) -> list[str]:
    trials = [
        Trial(number, {"x": 0.5}, TrialState.COMPLETED, {"loss": 1.0, **m})
        for number, m in enumerate(metrics)
    ]
    return list(
        caveats(
            Snapshot("s", "running", trials, parse_goals("minimize loss")),
            Space(Float("x", 0.0, 1.0)),
        )
    )


def test_skipped_updates_are_counted() -> None:
    skipped = {"skipped_updates": 3.0, "updates": 200.0}
    assert warnings({}, {"skipped_updates": 0.0}) == []
    assert warnings({}, skipped) == [
        "1 trial skipped updates because gradients were not finite; trial 1 skipped most: 3 of 200"
    ]
    assert warnings({"skipped_updates": 1.0}, skipped)[0].startswith("2 trials skipped updates")
