"""Whether a difference is more than noise: a test if values were repeated; else what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from report_sweeps import SPACE, write_sweep
from scipy import stats

from automl.core import Budget, SweepSpec, parse_goals
from automl.core.events import Begun, Closed, Ended, Proposed
from automl.core.trial import TrialState
from automl.ledger import Ledger
from automl.report.difference import FORECAST, Sample, between_sweeps, between_trials, welch
from automl.report.effects import insights_of
from automl.report.record import Record
from workers.protocol import Ending, Outcome

GOAL = parse_goals("minimize loss")[0]
PARAMS = {"lr": 1e-3, "batch_size": 32, "optimizer": "adam", "layout": "separate"}


def write(ledger: Ledger, name: str, losses: Sequence[float], seed: int = 0, **fields: str) -> None:
    """A finished sweep whose trials all have one configuration."""
    budget = Budget(trials=10)
    spec = SweepSpec(name, SPACE, (GOAL,), budget=budget, seed=seed, **fields)  # type: ignore[arg-type]
    recorder = ledger.acquire(ledger.create_sweep(spec, {}))
    for number, loss in enumerate(losses):
        recorder.apply(Proposed(number, PARAMS, "bayes"))
        recorder.apply(Begun(number, 1, 1.0))
        outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": loss}, seconds=1.0)
        recorder.apply(Ended(outcome, TrialState.COMPLETED, at=2.0))
    recorder.apply(Closed("finished"))
    recorder.commit(3.0)
    ledger.release(name)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)


def test_welch_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(1.0, 0.1, 5), rng.normal(1.2, 0.3, 8)
    found = welch(GOAL, Sample("a", tuple(one)), Sample("b", tuple(other)))
    expected = stats.ttest_ind(other, one, equal_var=False)
    assert found.better == "a"
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.exceeds_noise is bool(expected.pvalue < 0.05)


def test_a_lead_of_a_maximised_goal_is_positive() -> None:
    goal = parse_goals("maximize accuracy")[0]
    found = welch(goal, Sample("a", (0.5, 0.51, 0.49)), Sample("b", (0.9, 0.91, 0.92)))
    assert found.better == "b"
    assert found.lead == pytest.approx(0.41)
    assert found.exceeds_noise


def test_the_same_values_do_not_differ() -> None:
    found = welch(GOAL, Sample("a", (1.0, 1.0)), Sample("b", (1.0, 1.0)))
    assert (found.exceeds_noise, found.p) == (False, 1.0)


def test_one_seed_each_cannot_tell_two_settings_apart(ledger: Ledger) -> None:
    write(ledger, "a", [1.0, 0.5])
    write(ledger, "b", [1.0, 0.1], suggester="random")
    (setting,) = between_sweeps(ledger, ["a", "b"])["settings"]
    assert setting["exceeds_noise"] is None
    assert setting["words"].startswith(
        "Nothing is known about the difference of b and a. Each setting needs two"
    )
    (best,) = between_sweeps(ledger, ["a", "b"])["configurations"]
    assert best["words"].endswith("was not trained again twice: automl confirm a")


def test_several_seeds_tell_two_settings_apart(ledger: Ledger) -> None:
    for seed, (one, other) in enumerate([(0.50, 0.10), (0.52, 0.11), (0.49, 0.12)]):
        write(ledger, f"a-{seed}", [one], seed)
        write(ledger, f"b-{seed}", [other], seed, suggester="random")
    names = [f"{kind}-{seed}" for kind in "ab" for seed in range(3)]
    (setting,) = between_sweeps(ledger, names)["settings"]
    assert setting["exceeds_noise"] is True
    assert (setting["better"], setting["worse"]) == ("b-0, b-1, b-2", "a-0, a-1, a-2")
    assert "Welch's t test, p = " in setting["words"]
    assert between_sweeps(ledger, names[:3])["settings"] == [], "they differ in their seed alone"


def test_a_seed_that_ran_twice_is_one_sample(ledger: Ledger) -> None:
    write(ledger, "a", [0.5])
    write(ledger, "a-again", [0.5])
    write(ledger, "b", [0.1], suggester="random")
    write(ledger, "b-1", [0.2], seed=1, suggester="random")
    (setting,) = between_sweeps(ledger, ["a", "a-again", "b", "b-1"])["settings"]
    assert setting["exceeds_noise"] is None


def test_confirmed_configurations_are_compared(ledger: Ledger) -> None:
    for name, losses in (("a", [0.5, 0.52, 0.51]), ("b", [0.1, 0.11, 0.12])):
        write(ledger, name, [losses[0] - 0.05])
        write(ledger, f"{name}.confirm", losses)
    (best,) = between_sweeps(ledger, ["a", "b"])["configurations"]
    assert best["better"] == "b"
    assert best["lead"] == pytest.approx(0.4)
    assert best["exceeds_noise"] is True


def test_trials_are_compared_by_repeats_else_by_the_surrogate(tmp_path: Path) -> None:
    store = write_sweep(tmp_path, 24)
    ledger = Ledger.open(store)
    record = Record.read(ledger, "toy")
    insights = insights_of(record)
    scored = [trial.number for trial, _ in record.scored()]
    chosen = [(record, insights, number) for number in (scored[0], scored[-1])]
    (found,) = between_trials(ledger, chosen)
    assert (found["method"], found["exceeds_noise"], found["p"]) == (FORECAST, True, None)
    (near,) = between_trials(ledger, [(record, insights, n) for n in (scored[0], scored[1])])
    assert near["interval"][0] < found["interval"][0]
    (unknown,) = between_trials(ledger, [(record, (), n) for n in (scored[0], scored[-1])])
    assert unknown["exceeds_noise"] is None
    assert unknown["words"].endswith("no surrogate knows the noise: automl confirm toy")


def test_repeated_trials_are_compared_by_a_test(ledger: Ledger) -> None:
    write(ledger, "a", [0.5, 0.52, 0.51, 0.49])
    write(ledger, "b", [0.1, 0.12, 0.11])
    chosen = [(Record.read(ledger, name), (), 0) for name in "ab"]
    (found,) = between_trials(ledger, chosen)
    assert (found["better"], found["exceeds_noise"]) == ("trial 0 of b", True)
    assert found["p"] < 0.01
