"""The answer of a sweep: what is recommended, how sure that is, and what else people ask."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from report_snapshots import snapshot, trial

import automl
from automl.cli import cli
from automl.core import (
    Begun,
    Budget,
    Closed,
    Ended,
    Goal,
    Proposed,
    ReportLog,
    SweepSpec,
    Trial,
    TrialState,
    parse_constraints,
    parse_goals,
)
from automl.ledger import Ledger
from automl.report.answer import answer, caveats, knee
from automl.report.failures import failure_groups
from automl.report.recommendation import believed, recommended
from automl.report.record import Record
from search_spaces import Float, Space
from workers.protocol import Ending, Metric, Outcome

SPACE = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))


def truth(x: float, y: float) -> float:
    return 4 * (x - 0.6) ** 2 + (y - 0.3) ** 2


def swept(
    store: Path, noise: float, goals: str = "minimize loss", last_sound: float = 1.0, at: str = "x"
) -> Any:
    """A finished sweep of 40 random configurations, which fail or are infeasible beyond an `x`."""
    rng, sign = np.random.default_rng(0), -1 if goals.startswith("maximize") else 1
    spec = SweepSpec(
        "test",
        SPACE,
        parse_goals(goals),
        () if at == "x" else parse_constraints([f"size <= {last_sound}"]),
        budget=Budget(trials=40),
    )
    with closing(Ledger.open(store, create=True)) as ledger:
        held = ledger.hold(ledger.create_sweep(spec))
        for number, params in enumerate(SPACE.sample(rng, 40)):
            loss = sign * (truth(**params) + noise * rng.normal())
            outcome = Outcome(
                number, 1, Ending.COMPLETED, {"loss": loss, "size": params["x"]}, seconds=1.0
            )
            end = Ended(outcome, TrialState.COMPLETED, at=number + 1.0)
            if at == "x" and params["x"] > last_sound:
                outcome = Outcome(number, 1, Ending.FAILED, failure="crashed", seconds=1.0)
                end = Ended(outcome, TrialState.FAILED, "crashed", at=number + 1.0)
            for event in (Proposed(number, params, "random"), Begun(number, 1), end):
                held.state.apply(event)
        held.state.apply(Closed("finished"))
        held.commit(40.0)
    return automl.load("test", store)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """A sweep under noise, and its store."""
    store = tmp_path_factory.mktemp("noisy")
    return swept(store, 0.3), str(store)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_under_noise_the_luckiest_trial_is_not_recommended(
    tmp_path: Path, noisy: tuple[Any, str], direction: str
) -> None:
    sign = -1 if direction == "maximize" else 1
    result = noisy[0] if sign > 0 else swept(tmp_path, 0.3, "maximize loss")
    lucky, advice = result.best, result.recommended
    assert lucky.number not in advice.trials
    assert truth(**advice.params) < truth(**lucky.params) / 2
    assert advice.interval is not None
    assert advice.interval[0] < sign * truth(**advice.params) < advice.interval[1]
    first = truth(**result.trials[0].params)
    assert advice.baseline_interval[0] < sign * first < advice.baseline_interval[1]
    assert 0.5 < advice.probability_better <= 1
    assert 0 < advice.probability_best <= 1


def test_all_who_are_asked_say_the_same(noisy: tuple[Any, str]) -> None:
    result, store = noisy
    found = answer(Record.of(result.snapshot))
    advice = found.recommendation
    assert advice is not None
    words = ["best", "test", "--store", store]
    shown = CliRunner().invoke(cli, words).output.replace(" \n", " ")
    for line in (*advice.lines(result.snapshot), advice.luck(result.snapshot)):
        assert line in shown
    printed = json.loads(CliRunner().invoke(cli, [*words, "--json"]).output)
    assert printed["number"] == result.best.number
    assert printed["recommended"] == json.loads(json.dumps(advice.to_dict()))
    assert str(found.outlook).split("(")[0] in shown, "the pace may differ by milliseconds"
    assert [str(one) in shown for one in found.next] == [True] * 3


def test_the_plateau_ends_where_the_loss_grows_by_the_noise(tmp_path: Path) -> None:
    found = answer(Record.of(swept(tmp_path, 0.1).snapshot))
    rows = {row.name: row for row in found.rows}
    best: Any = found.recommendation.params  # type: ignore[union-attr]
    for name, row in rows.items():
        assert row.band is not None
        ends = [truth(**{**best, name: end}) - truth(**best) for end in row.band]
        assert max(ends) < 0.4
        assert row.band[0] <= row.at <= row.band[1]
        assert f"to {automl.core.text.number(row.band[1])}"[:5] in row.words
    assert np.ptp(rows["x"].band or ()) < np.ptp(rows["y"].band or ()), "x matters more"


@pytest.mark.parametrize("at", ["x", "size"])
def test_the_plateau_ends_where_trials_fail_or_break_a_constraint(tmp_path: Path, at: str) -> None:
    found = answer(Record.of(swept(tmp_path, 0.3, last_sound=0.5, at=at).snapshot))
    (row,) = [row for row in found.rows if row.name == "x"]
    ends = (row.band[1], *(one.params["x"] for one in found.next))
    assert row.at <= max(ends) < 0.6, "the loss alone goes on to fall"
    costly = replace(row, default=0.9, default_at=0.9, cost=float("inf"))
    assert costly.back == "default 0.9: likely fails or is infeasible"


def test_without_a_believable_model_it_is_the_observed_best(tmp_path: Path) -> None:
    result = swept(tmp_path, 100.0)
    found = answer(Record.of(result.snapshot))
    advice: Any = found.recommendation
    assert advice.trials == (result.best.number,)
    assert (advice.mean, advice.interval) == (result.best.value, None)
    assert (advice.probability_better, advice.probability_best) == (None, None)
    assert (found.outlook, found.next, found.luck) == (None, (), "")
    assert found.unknown.startswith("Not known: how sure this is")
    assert [row.band for row in found.rows] == [None, None]


def test_what_was_stopped_early_counts_in_no_model(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.0)
    assert result.recommended.trials == (result.best.number,)
    assert result.recommended.mean == pytest.approx(result.best.value, abs=0.01)

    def stopped(trial: Trial, loss: float) -> Trial:
        metrics = {"loss": loss}
        return replace(trial, state=TrialState.STOPPED, reports=ReportLog(), metrics=metrics)

    trials = [stopped(t, 3.0) if t.number % 2 else t for t in result.trials]
    found = Record.of(replace(result.snapshot, trials=tuple(trials), values={}))
    assert believed(found) is not None
    best, advice = found.snapshot.best, recommended(found)
    assert best is not None
    assert advice is not None
    assert (advice.trials, advice.mean) == ((best.number,), pytest.approx(best.value, abs=0.01))
    trials[1] = stopped(trials[1], -1.0)
    last: Any = answer(Record.of(replace(result.snapshot, trials=tuple(trials), values={})))
    assert [
        *(getattr(last.recommendation, of) for of in ("trials", "mean", "interval")),
        last.unknown.partition(", since ")[2],
    ] == [(1,), -1.0, None, "trial 1 did not run to its end, and the model knows whole trials."]


def test_the_runs_of_a_configuration_count_together() -> None:
    values = {0.2: [1.0, 1.2, 1.4], 0.6: [2.0], 0.9: [3.0]}
    with automl.Optimizer({"x": (0.0, 1.0)}, "minimize loss", suggester="random") as optimizer:
        assert optimizer.recommended is None
        for x, losses in values.items():
            for loss in losses:
                optimizer.add({"x": x}, {"loss": loss})
        advice = optimizer.recommended
    assert advice is not None
    assert (advice.params, advice.trials, advice.runs) == ({"x": 0.2}, (0, 1, 2), 3)
    assert advice.mean == pytest.approx(1.2)


def test_a_value_that_repeats_is_no_luck(noisy: tuple[Any, str]) -> None:
    best = noisy[0].best
    trials = (*noisy[0].trials, replace(best, number=40, replicate_of=best.number))
    advice: Any = recommended(Record.of(replace(noisy[0].snapshot, trials=trials, values={})))
    assert (advice.trials, advice.mean) == ((best.number, 40), pytest.approx(best.value, abs=0.02))


def failed(number: int, rate: float, message: str) -> Trial:
    params = {"learning_rate": rate, "precision": "bf16"}
    return trial(number, None, TrialState.FAILED, failure="crashed", message=message, params=params)


def test_failures_are_grouped_by_message_and_said_where_they_are() -> None:
    good = [
        trial(i, 20.0, params={"learning_rate": 1e-4 * 2**i, "precision": "fp32"}) for i in range(6)
    ]
    bad = [failed(6 + i, 0.02 + 0.01 * i, f"nan at step {100 + i}") for i in range(5)]
    groups = failure_groups(snapshot(*good, *bad, failed(11, 0.001, "no GPU")))
    assert [(len(one.trials), one.message) for one in groups] == [
        (5, "nan at step 100"),
        (1, "no GPU"),
    ]
    assert groups[0].where.endswith("of 5 failed") or groups[0].where.endswith("of 6 failed")
    assert groups[0].cut.startswith("automl set nmt 'space.")
    assert (groups[1].where, groups[1].cut) == ("", "")
    few = failure_groups(snapshot(*good, *bad[:4]))
    assert few[0].where == "", "four failures are too few for a sentence"


def test_the_knee_is_nearest_to_the_best_of_both_goals() -> None:
    goals = (Goal("loss"), Goal("size"))
    values = [(1.0, 9.0), (2.0, 2.0), (9.0, 1.0)]
    trials = [trial(i, None, metrics={"loss": a, "size": b}) for i, (a, b) in enumerate(values)]
    shown = snapshot(*trials, goals=goals)
    assert knee(shown, shown.pareto) == 1
    assert knee(shown, shown.pareto[:2]) is None


def test_a_goal_against_the_declared_direction_is_doubted() -> None:
    one = Trial(0, {"x": 0.5}, TrialState.COMPLETED, {"loss": 1.0})

    def doubts(declared: Any) -> list[str]:
        goal = Goal("loss", declared=Metric("loss", declared))
        return list(caveats(snapshot(one, goals=(goal,)), SPACE))

    assert doubts("maximize") == [
        "the goal is 'minimize loss', but loss is declared: higher is better"
    ]
    assert doubts("minimize") == []
