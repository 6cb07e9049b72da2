"""Advice on programs: output that comes too late, and misspelt goals."""

from __future__ import annotations

from typing import Any

from automl.core import Trial, parse_goals
from automl.core.advice import advice
from automl.core.reports import ReportLog, ReportPoint


def test_a_program_that_keeps_its_output_back() -> None:
    details: dict[str, Any] = {"buffered": 5}
    (text,) = advice([Trial(0, {}), Trial(1, {}, details=details)])
    assert "all 5 reports of trial 1 came at its end" in text
    assert "stdbuf -oL" in text


def test_a_goal_that_is_returned_by_a_misspelt_name() -> None:
    reports = ReportLog([ReportPoint(1, {"loss": 0.5, "lossy": 1.0}, 1.0)])
    goals = parse_goals("minimize loss")

    def said(*returned: str) -> list[str]:
        return advice([Trial(0, {}, reports=reports, returned=returned)] * 3, goals)

    (text,) = said("size", "los")
    assert text == (
        "a trial has returned 'los', which is no goal: did you mean 'loss'? Its reports count"
    )
    assert said("size", "lossy") == said("loss", "los") == said() == []


def test_what_only_advice_reads_is_not_shown_to_a_person() -> None:
    trial = Trial(0, {}, details={"buffered": 5, "exception": "ValueError"})
    assert trial.facts == {"exception": "ValueError"}
