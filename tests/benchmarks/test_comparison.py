"""The comparison with other tools: the page shows the files and rows that exist."""

from __future__ import annotations

import re

import pytest
from sources import ROOT

from benchmarks.comparison import page, run

HERE = ROOT / "benchmarks" / "comparison"


def test_the_page_has_the_present_code_and_tables() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text, "run python benchmarks/comparison/page.py"
    shown = set(re.findall(r"<!-- begin code (\w+) -->", text))
    assert shown == {f"{task}_{tool}" for task in run.TASKS for tool in run.TOOLS}
    assert set(re.findall(r"<!-- begin table (\w+) -->", text)) == set(run.TASKS)


def test_a_pair_without_rows_is_shown_as_not_measured() -> None:
    rows = [row for row in run.store.read(run.ROWS) if row["tool"] != "ax"]
    lines = run.table("digits", rows).splitlines()
    assert len(lines) == 2 + len(run.TOOLS)
    assert [line for line in lines if "not measured" in line] == [
        "| Ax | 0 | not measured | not measured | not measured |"
    ]


def test_the_code_is_short() -> None:
    files = [HERE / f"{task}_{tool}.py" for task in run.TASKS for tool in run.TOOLS]
    assert [path.name for path in files if len(path.read_text().splitlines()) > 40] == []


@pytest.mark.parametrize(
    ("points", "volume"),
    [
        ([], 0.0),
        ([(0.0, 100)], 1.0),
        ([(0.15, 1000)], 0.25),
        ([(0.15, 1000), (0.15, 1000), (0.2, 2000)], 0.25),
        ([(0.15, 1000), (0.0, 10_000)], 0.25),
        ([(0.15, 1000), (0.3, 100)], 0.25),
        ([(0.15, 100), (0.0, 1000)], 0.5 + 0.25),
        ([(0.15, 1)], 0.5),
    ],
)
def test_the_hypervolume_is_the_share_of_the_box(
    points: list[tuple[float, float]], volume: float
) -> None:
    assert run.hypervolume(points) == pytest.approx(volume)


def test_trials_without_a_value_count_as_failed() -> None:
    records = [{"error": 0.5}, {"failed": "out_of_memory"}, {"error": 0.25}]
    assert run.judge("memory", records, trials=5) == {"error": 0.25, "failed": 3}


def test_infeasible_trials_dominate_nothing() -> None:
    records = [
        {"error": 0.0, "nodes": 100, "recall": 0.5},
        {"error": 0.15, "nodes": 1000, "recall": 0.6},
    ]
    assert run.judge("forest", records, trials=2) == {"volume": pytest.approx(0.25), "feasible": 1}


@pytest.mark.parametrize("pair", ["memory_optuna", "memory_automl"])
def test_a_pair_is_measured_in_its_own_process(pair: str) -> None:
    (row,) = run.measure(pair, [1], 3)
    assert row["error"] > 0
    assert 0 <= row["failed"] < 3
    assert row["first_seconds"] > row["seconds"] > 0
