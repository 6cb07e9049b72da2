"""Earlier sweeps of a store: what is found, recorded and learned from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl import Choice, Float, Space
from automl.core import SweepSpec, parse_goals
from automl.core.trial import Trial, TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.page import settings
from automl.report.record import Record
from automl.suggesters.base import EarlierSweep, SearchContext
from automl.suggesters.bayes.suggester import BayesSuggester
from automl.suggesters.domain import Domain

SPACE = Space(Float("lr", 1e-5, 1e-1, log=True), Choice("optimizer", ["sgd", "adam"]))
WIDER = Space(*SPACE.parameters.values(), Float("dropout", 0.0, 0.5))
OTHER = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
GOALS = parse_goals("minimize loss")


def loss(params: Any) -> float:
    return float((np.log10(params["lr"]) + 3.5) ** 2 + (params["optimizer"] == "sgd"))


def objective(trial: Any) -> dict[str, float]:
    return {"loss": loss(trial.params) if "lr" in trial.params else trial.params["x"]}


def swept(store: Path, name: str, space: Space = SPACE, **options: Any) -> Any:
    given: dict[str, Any] = {"trials": 10, "suggester": "random", "dispatcher": "inline", **options}
    return automl.sweep(objective, space, "minimize loss", name=name, store=str(store), **given)


def spec_of(store: Path, name: str) -> SweepSpec:
    ledger = Ledger.open(str(store), readonly=True)
    try:
        return ledger.spec(name)
    finally:
        ledger.close()


def test_auto_takes_sweeps_of_an_overlapping_space_and_records_them(tmp_path: Path) -> None:
    first = swept(tmp_path, "first")
    swept(tmp_path, "unlike", OTHER)
    swept(tmp_path, "second", WIDER, suggester="bayes", prior="like:auto", trials=4)
    spec = spec_of(tmp_path, "second")
    assert list(spec.earlier) == ["first"]
    assert spec.earlier["first"]["params"] == [trial.params for trial in first.trials]
    assert SweepSpec.from_dict(spec.to_dict()) == spec
    ledger = Ledger.open(str(tmp_path), readonly=True)
    rows = dict(settings(Record.read(ledger, "second")))  # type: ignore[arg-type]
    ledger.close()
    assert rows["learned from"] == "10 trials of first"


def test_a_resumed_sweep_suggests_the_same_although_the_store_has_changed(tmp_path: Path) -> None:
    for store in ("a", "b"):
        swept(tmp_path / store, "first", seed=3)
    given: dict[str, Any] = {"suggester": "bayes", "prior": "like:auto"}
    whole = swept(tmp_path / "a", "second", trials=7, **given)
    swept(tmp_path / "b", "second", trials=5, **given)
    swept(tmp_path / "b", "third")
    part = swept(tmp_path / "b", "second", trials=7, resume=True, **given)
    assert [t.params for t in part.trials] == [t.params for t in whole.trials]


def test_the_optimizer_learns_from_a_sweep_of_its_store(tmp_path: Path) -> None:
    first = swept(tmp_path, "first", trials=20)
    with automl.Optimizer(SPACE, "minimize loss", store=str(tmp_path), prior="like:first") as found:
        assert found.ask().params == first.best.params


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "like:absent"}, "no sweep named 'absent'"),
        ({"prior": "like:unlike"}, "has no successful trial with loss"),
        ({"prior": "like:first", "suggester": "tpe"}, "'tpe' ignores earlier sweeps"),
        ({"name": "auto"}, "no sweep is named 'auto', because"),
    ],
)
def test_a_wrong_earlier_sweep_is_refused_and_leaves_nothing(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    swept(tmp_path, "first")
    swept(tmp_path, "unlike", OTHER)
    with pytest.raises(UsageError, match=message):
        swept(tmp_path, **{"name": "second", "suggester": "bayes", **options})
    ledger = Ledger.open(str(tmp_path), readonly=True)
    assert [info.name for info in ledger.sweeps()] == ["first", "unlike"]
    ledger.close()


def earlier(seed: int, *, shuffled: bool = False, shift: float = 0.0) -> EarlierSweep:
    rng = np.random.default_rng(seed)
    params = SPACE.sample(rng, 40)
    losses = [3.0 * loss({**p, "lr": p["lr"] * 10**shift}) + 7.0 for p in params]
    return EarlierSweep(
        "e", params, {"loss": list(rng.permutation(losses)) if shuffled else losses}
    )


def regret(sweeps: list[EarlierSweep], seed: int, count: int) -> float:
    """The best loss of a search in the wider space, of which `dropout` is new."""
    context = SearchContext(Domain(WIDER), earlier=sweeps)
    suggester = BayesSuggester(WIDER, GOALS, seed=seed, context=context)
    trials: list[Trial] = []
    for number in range(count):
        params = suggester.suggest(trials, [])[0]
        value = loss(params) + (params["dropout"] - 0.2) ** 2
        trials.append(Trial(number, params, TrialState.COMPLETED, {"loss": value}))
    return min(trial.metrics["loss"] for trial in trials)


def test_a_related_sweep_helps_early_and_unrelated_ones_are_overcome() -> None:
    alike = [earlier(1, shift=0.2), earlier(2, shift=-0.2)]
    wrong = [earlier(seed, shuffled=True) for seed in (3, 4)]
    assert np.mean([regret(alike, seed, 5) for seed in range(3)]) < 0.5 * np.mean(
        [regret([], seed, 5) for seed in range(3)]
    )
    assert np.mean([regret(wrong, seed, 16) for seed in range(3)]) < 0.05
