"""Knowledge of well-known parameters: roles, densities, what overrides them, what is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl import Choice, Float, Int, Space
from automl.ledger import Ledger
from automl.report.page import settings
from automl.report.record import Record
from automl.suggesters.knowledge import InformedPrior, kind_of, learned, role_of
from automl.suggesters.user_prior import UserPrior

SPACE = Space(
    Float("model.lr", 1e-5, 1.0, log=True),
    Int("batch_size", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam"]),
    Float("unheard_of", 0.0, 1.0),
)
KNOWN = {
    "networks": {
        "learning_rate": {
            "at": -2.0,
            "spread": 0.5,
            "log": True,
            "shifts": {"optimizer": {"sgd": 1.0}, "batch_size": {"slope": 0.5, "origin": 1.5}},
        },
        "optimizer": {"weights": {"adam": 3.0, "sgd": 1.0}},
    }
}


def prior(beliefs: dict[str, Any] | None = None, space: Space = SPACE) -> InformedPrior:
    return InformedPrior(UserPrior(space, beliefs or {}), KNOWN)


def density(found: InformedPrior, **params: Any) -> float:
    whole = {"model.lr": 1e-2, "batch_size": 32, "optimizer": "adam", "unheard_of": 0.5}
    given = {name.replace("__", "."): v for name, v in params.items()}
    return float(found.log_density(found.space.encode([{**whole, **given}]))[0])


@pytest.mark.parametrize(
    ("name", "role"),
    [("lr", "learning_rate"), ("opt.init_lr", "learning_rate"), ("C", "C"), ("c", ""), ("x", "")],
)
def test_a_name_tells_the_role(name: str, role: str) -> None:
    assert role_of(name) == role


def test_the_usual_rate_follows_optimizer_and_batch() -> None:
    found = prior()
    assert density(found) > density(found, model__lr=1e-4)
    assert density(found, optimizer="sgd", model__lr=1e-1) > density(found, model__lr=1e-1)
    small, large = (
        density(found, batch_size=512, model__lr=lr) - density(found, batch_size=8, model__lr=lr)
        for lr in (3e-3, 3e-2)
    )
    assert small < 0 < large
    drawn = np.log10(
        [
            p["model.lr"]
            for p in SPACE.decode(
                found.draw(
                    np.random.default_rng(0),
                    SPACE.encode(SPACE.sample(np.random.default_rng(0), 300)),
                )
            )
        ]
    )
    assert abs(np.median(drawn) + 1.7) < 0.3


def test_beliefs_and_ranges_of_the_user_count_instead() -> None:
    believed = prior({"model.lr": 1e-4})
    assert density(believed, model__lr=1e-4) > density(believed, model__lr=1e-2)
    assert believed.mode()["model.lr"] == 1e-4
    elsewhere = Space(Float("lr", 1e-7, 1e-5, log=True), Int("batch", 8, 512, log=True))
    assert not prior(space=elsewhere)
    assert not prior(space=Space(Float("lr", 1e-5, 1e-1), Int("batch", 8, 512)))


def test_a_space_of_an_unknown_kind_has_no_usual_values() -> None:
    space = Space(Float("x", 0.0, 1.0), Float("y", 1e-3, 1.0, log=True))
    assert not InformedPrior(UserPrior(space, {}), learned())
    assert str(InformedPrior(UserPrior(space, {}), learned())) == ""


def test_what_was_learned_has_known_roles_and_is_small() -> None:
    for roles in learned().values():
        for role, known in roles.items():
            assert role_of(role) == role
            assert known.get("spread", 1.0) > 0
    assert kind_of(SPACE) in learned()


def test_a_sweep_says_where_it_begins(tmp_path: Path) -> None:
    automl.sweep(
        lambda trial: trial.params["model.lr"],
        SPACE,
        "minimize loss",
        trials=2,
        name="s",
        prior="usual",
        dispatcher="inline",
        store=str(tmp_path),
    )
    ledger = Ledger.open(str(tmp_path), readonly=True)
    rows = dict(settings(Record.read(ledger, "s")))  # type: ignore[arg-type]
    first = ledger.trials("s")[0]
    ledger.close()
    assert "usual for networks" in rows["usual values"]
    assert f"model.lr {first.params['model.lr']:.2g}" in rows["usual values"]
