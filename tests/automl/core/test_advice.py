"""Advice on programs: files that trials share, and output that comes too late."""

from __future__ import annotations

from typing import Any

import pytest

from automl.core import Trial, parse_goals
from automl.core.advice import advice
from automl.core.reports import ReportLog, ReportPoint


def ran(number: int, began: float, ended: float, **changed: float) -> Trial:
    names = {name.replace("_", "."): at for name, at in changed.items()}
    facts = {"place": "host:/work", "began": began, "ended": ended, "changed": names}
    return Trial(number, {}, details={"files": facts})


PAIR = (ran(0, 0, 10, model_pt=9.9), ran(1, 0.1, 10.1, model_pt=9.95))


def test_a_file_that_the_first_pair_writes_is_named() -> None:
    (text,) = advice(PAIR)
    assert "trials 0 and 1 ran at the same time, and 'model.pt' has changed in both" in text
    assert "{trial_dir}" in text
    assert "`cwd: trial`" in text


@pytest.mark.parametrize(
    "trials",
    [
        (PAIR[0], ran(1, 10.5, 20, model_pt=19.0)),  # one after the other
        (ran(0, 0, 10, notes_md=5.0), ran(1, 1, 11, notes_md=5.0)),  # edited by a person
        (ran(0, 0, 10, run0_log=9.9, run1_log=9.8), ran(1, 1, 11, run0_log=9.9, run1_log=10.9)),
        (ran(0, 0, 10, adam_csv=9.9, sgd_csv=9.8), ran(1, 1, 11, adam_csv=9.9, sgd_csv=10.9)),
        (ran(0, 0, 10, a_csv=9.9), ran(1, 1, 11, b_csv=10.9)),
    ],
)
def test_other_files_are_not(trials: tuple[Trial, ...]) -> None:
    assert advice(trials) == []


def test_several_shared_files_of_a_kind_take_one_more_trial() -> None:
    pair = ran(0, 0, 10, model_pt=9.9, state_pt=9.9), ran(1, 1, 11, model_pt=10.9, state_pt=10.9)
    assert advice(pair) == []
    (text,) = advice([*pair, ran(2, 10, 20, model_pt=19.9, state_pt=19.9)])
    assert "'model.pt'" in text


def test_files_of_this_process_are_not() -> None:
    assert advice(PAIR, {"/work/model.pt"}) == []


def test_a_program_that_keeps_its_output_back() -> None:
    details: dict[str, Any] = {"buffered": 5}
    (text,) = advice([Trial(0, {}), Trial(1, {}, details=details)])
    assert "all 5 reports of trial 1 came at its end" in text
    assert "stdbuf -oL" in text


def test_a_goal_that_is_returned_by_a_misspelt_name() -> None:
    reports = ReportLog([ReportPoint(1, {"loss": 0.5, "lossy": 1.0}, 1.0)])
    goals = parse_goals("minimize loss")

    def said(*returned: str) -> list[str]:
        return advice([Trial(0, {}, reports=reports, returned=returned)] * 3, (), goals)

    (text,) = said("size", "los")
    assert text == (
        "a trial has returned 'los', which is no goal: did you mean 'loss'? Its reports count"
    )
    assert said("size", "lossy") == said("loss", "los") == said() == []


def test_what_only_advice_reads_is_not_shown_to_a_person() -> None:
    trial = Trial(0, {}, details={**PAIR[0].details, "buffered": 5, "exception": "ValueError"})
    assert trial.facts == {"exception": "ValueError"}
