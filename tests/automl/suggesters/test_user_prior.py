from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl.core.goals import parse_goals
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.page import settings
from automl.report.record import Record
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import make_suggester
from automl.suggesters.user_prior import (
    ParameterPrior,
    UserPrior,
    prior_from_best,
    split_prior,
)
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Float("momentum", 0.0, 1.0),
    Int("depth", 1, 12),
    Choice("optimizer", ["sgd", "adam", "rmsprop"]),
    Choice("blocks", [1, 2, 4, 8], ordered=True),
)
GOALS = parse_goals("minimize loss")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("lr", 1e-3),
        ("lr", {"at": [1e-4, 1e-2], "spread": 0.05}),
        ("depth", 3),
        ("optimizer", "adam"),
        ("optimizer", ["adam", "sgd"]),
        ("blocks", 4),
    ],
)
def test_a_prior_draws_from_its_density(name: str, given: Any) -> None:
    prior = ParameterPrior.read(SPACE.parameters[name], given)
    unit = (np.arange(2000) + 0.5) / 2000
    density = prior.density(unit)
    assert density.mean() == pytest.approx(1.0, abs=0.01)
    assert density.min() >= 0.099
    drawn = prior.draw(np.random.default_rng(0), 20_000)
    bins = 4 if name != "optimizer" else 3
    found = np.histogram(drawn, bins=bins, range=(0, 1))[0] / 20_000
    expected = density.reshape(bins, -1).mean(1) / bins if 2000 % bins == 0 else found
    assert found == pytest.approx(expected, abs=0.03)
    assert ParameterPrior.read(SPACE.parameters[name], prior.to_dict()) == prior


@pytest.mark.parametrize(
    "given",
    [
        {"rate": 1},
        {"lr": 5.0},
        {"lr": {"at": 1e-3, "spread": 0}},
        {"lr": {"spread": 0.1}},
        {"optimizer": "adamw"},
        {"optimizer": {"at": "adam", "near": 1}},
        {"lr": []},
        {"momentum": {"at": None}},
    ],
)
def test_a_prior_that_does_not_fit_is_refused(given: Any) -> None:
    with pytest.raises(UsageError):
        UserPrior(SPACE, given)


def test_a_suggester_that_ignores_the_prior_refuses_it() -> None:
    with pytest.raises(UsageError, match="'tpe' ignores prior"):
        automl.Optimizer(SPACE, "minimize loss", suggester="tpe", prior={"lr": 1e-3})


def gap(given: dict[str, Any], seed: int, count: int = 12) -> float:
    """How close a sweep comes to lr=1e-3, momentum=0.9 in so many trials, the design included."""
    suggester = make_suggester("bayes", GOALS, (), SearchContext(Domain(SPACE), given), seed=seed)
    trials: list[Trial] = []
    for number in range(count):
        params = suggester.suggest(trials, [], 1)[0]
        SPACE.accept(params)
        loss = (np.log10(params["lr"]) + 3) ** 2 + (params["momentum"] - 0.9) ** 2  # type: ignore[arg-type, operator]
        trials.append(Trial(number, params, TrialState.COMPLETED, {"loss": float(loss)}))
    return min(trial.metrics["loss"] for trial in trials)


def test_a_good_prior_helps_and_a_wrong_one_is_overcome() -> None:
    seeds = range(3)
    neutral = np.mean([gap({}, seed, count=4) for seed in seeds])
    near = {"lr": 2e-3, "momentum": {"at": 0.8, "spread": 0.1}}
    good = np.mean([gap(near, seed, count=4) for seed in seeds])
    assert good < 0.8 * neutral  # measured: half
    wrong = np.mean([gap({"lr": {"at": 1e-1, "spread": 0.1}}, seed, count=25) for seed in seeds])
    assert wrong < 0.01  # measured: 0.0008, and 0.0006 without it


def quadratic(trial: Any) -> dict[str, float]:
    return {"loss": (np.log10(trial.params["lr"]) + 3) ** 2 + (trial.params["depth"] - 4) ** 2}


def test_two_numbers_are_a_range() -> None:
    found = ParameterPrior.read(SPACE.parameters["lr"], [1e-4, 1e-2])
    assert found.at == pytest.approx((1e-3,))
    assert found.spread == pytest.approx(0.25)
    given = [{"lr": 1e-3}, "old.csv", "like:nmt", {"depth": 3}]
    assert split_prior(given) == ({"lr": 1e-3, "depth": 3}, ("like:nmt",), ["old.csv"])


def test_a_choice_that_looks_alike_is_not_favoured() -> None:
    flag = Choice("flag", [True, 1, "1"])
    learned = prior_from_best(Space(flag), [{"flag": 1}, {"flag": 1}])["flag"]
    assert (learned.mass, ParameterPrior.read(flag, True).mass) == ((1, 7, 1), (5.5, 1, 1))


def test_a_prior_is_recorded_and_told(tmp_path: Path) -> None:
    store = str(tmp_path)
    options: dict[str, Any] = {"goals": "minimize loss", "dispatcher": "inline", "store": store}
    automl.sweep(quadratic, SPACE, trials=3, name="s", prior={"momentum": 0.5}, **options)
    ledger = Ledger.open(store, readonly=True)
    spec = ledger.spec("s")
    assert spec.knowledge.prior == {"momentum": {"at": [0.5], "spread": 0.15}}
    rows = dict(settings(Record.read(ledger, "s")))  # type: ignore[arg-type]
    assert "momentum" in rows["prior"]
    assert SweepSpec.from_dict(spec.to_dict()) == spec
    ledger.close()
