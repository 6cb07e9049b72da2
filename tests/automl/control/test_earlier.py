"""Earlier sweeps of a store: what is found, recorded and learned from them."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl import Choice, Float, Space
from automl.core import SweepSpec
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.page import settings
from automl.report.record import Record

SPACE = Space(Float("lr", 1e-5, 1e-1, log=True), Choice("optimizer", ["sgd", "adam"]))
WIDER = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-2),
    Choice("optimizer", ["sgd", "adam"], default="sgd"),
    Float("dropout", 0.0, 0.5, default=0.0),
)
OTHER = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))


def objective(trial: Any) -> dict[str, float]:
    params = trial.params
    if "lr" not in params:
        return {"loss": params["x"]}
    return {"loss": float((np.log10(params["lr"]) + 3.5) ** 2 + (params["optimizer"] == "sgd"))}


def swept(store: Path, name: str, space: Space = SPACE, **options: Any) -> Any:
    given: dict[str, Any] = {"trials": 10, "suggester": "random", "dispatcher": "inline", **options}
    return automl.sweep(objective, space, "minimize loss", name=name, store=str(store), **given)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sweeps `first`, of 10 trials, and `unlike`, of another space."""
    folder = tmp_path_factory.mktemp("known")
    swept(folder, "first", seed=3)
    swept(folder, "unlike", OTHER, trials=1)
    return folder


@pytest.fixture
def store(known: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(known, tmp_path / "store"))


def test_a_sweep_of_an_overlapping_space_is_recorded_and_learned_from(store: Path) -> None:
    first = automl.load("first", store)
    second = swept(store, "second", WIDER, suggester="bayes", prior="like:first", trials=2)
    with closing(Ledger.open(store, readonly=True)) as ledger:
        spec = ledger.spec("second")
        rows = dict(settings(Record.read(ledger, "second")))  # type: ignore[arg-type]
    assert list(spec.knowledge.earlier) == ["first"]
    assert spec.knowledge.earlier["first"]["params"] == [trial.params for trial in first.trials]
    assert SweepSpec.from_dict(spec.to_dict()) == spec
    best = first.best.params | {"lr": pytest.approx(first.best.params["lr"])}
    assert second.trials[1].params | best == second.trials[1].params, "after the default"
    assert rows["learned from"] == "10 trials of first"
    with automl.Optimizer(SPACE, "minimize loss", store=str(store), prior="like:first") as found:
        assert found.ask().params == first.best.params


def test_a_resumed_sweep_suggests_the_same_although_the_store_has_changed(store: Path) -> None:
    given: dict[str, Any] = {"suggester": "bayes", "prior": "like:first"}
    other = shutil.copytree(store, store.parent / "other")
    whole = swept(store, "second", trials=4, **given)
    swept(other, "second", trials=3, **given)
    swept(other, "third", trials=2)
    part = swept(other, "second", trials=4, resume=True, **given)
    assert [t.params for t in part.trials] == [t.params for t in whole.trials]


def test_a_wrong_earlier_sweep_is_refused_and_leaves_nothing(store: Path) -> None:
    for prior, suggester, message in (
        ("like:absent", "bayes", "no sweep named 'absent'"),
        ("like:unlike", "bayes", "has no successful trial with loss"),
        ("like:first", "sobol", "'sobol' ignores earlier sweeps"),
    ):
        with pytest.raises(UsageError, match=message):
            swept(store, "second", prior=prior, suggester=suggester)
    with closing(Ledger.open(store, readonly=True)) as ledger:
        assert [info.name for info in ledger.sweeps()] == ["first", "unlike"]
