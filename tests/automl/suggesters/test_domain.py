from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from objectives import make_spec

from automl import sweeps
from automl.cli import cli
from automl.config.loading import limit_of
from automl.core.state import Snapshot
from automl.core.trial import Trial, TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters.base import SearchContext, Suggester
from automl.suggesters.domain import Domain, Limit
from automl.suggesters.proposer import make_suggester
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Int("width", 8, 512, log=True, default=64),
    Choice("optimizer", ["sgd", "adam", "rmsprop"], default="adam"),
    Float("momentum", 0.0, 0.99, default=0.9, when={"optimizer": "sgd"}),
    Choice("blocks", [1, 2, 4, 8], ordered=True, default=2),
    constraints=["width >= 16 * blocks"],
)
LIMITS = {
    name: limit_of(SPACE, name, value)
    for name, value in {
        "lr": [1e-4, 1e-3],
        "optimizer": ["adam", "rmsprop"],
        "width": 128,
    }.items()
}


def history(count: int) -> list[Trial]:
    points = SPACE.sample(np.random.default_rng(0), count)
    return [
        Trial(i, params, TrialState.COMPLETED, {"loss": abs(np.log10(params["lr"]) + 2)})  # type: ignore[arg-type]
        for i, params in enumerate(points)
    ]


def test_a_parameter_that_cannot_be_active_is_left_out() -> None:
    narrow = Domain(SPACE, LIMITS).inner
    assert "momentum" not in narrow.parameters
    assert narrow.default() == {"lr": 1e-3, "width": 128, "optimizer": "adam", "blocks": 2}
    with pytest.raises(UsageError, match="no configuration is left"):
        Domain(SPACE, {"width": Limit(low=8, high=8)})


def test_none_as_a_default_stays_within_limits() -> None:
    space = Space(Choice("clip", ["a", None, "b"], default=None), Choice("free", ["a", None]))
    kept = Domain(space, {"clip": Limit((None, "b")), "free": Limit((None,))}).inner.parameters
    assert (kept["clip"].has_default, kept["clip"].default) == (True, None)
    assert not kept["free"].has_default
    moved = Domain(space, {"clip": Limit(("b",))}).inner.parameters["clip"]
    assert (moved.has_default, moved.default) == (True, "b")


def limited(name: str, space: Space, limits: dict[str, Limit], seed: int = 0) -> Suggester:
    context = SearchContext(Domain(space, limits))
    return make_suggester(name, make_spec().goals, (), context, seed=seed)


@pytest.mark.parametrize("name", ["bayes", "sobol", "random", "tpe"])
@pytest.mark.parametrize("known", [0, 12])
def test_every_suggester_keeps_within_limits(name: str, known: int) -> None:
    waiting = [Trial(100, SPACE.default() or {})]
    found = limited(name, SPACE, LIMITS, seed=1).suggest(history(known), waiting, 5)
    assert len(found) == 5
    for params in found:
        Domain(SPACE, LIMITS).inner.accept(params)
        SPACE.accept(params)


def objective(trial: Any) -> dict[str, float]:
    trial.report(step=1, loss=trial.params["lr"])
    return {"loss": trial.params["lr"]}


def pinned(store: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(cli, ["set", "test", *arguments, "--store", str(store)])
    assert done.exit_code == 0, done.output
    return done


def test_a_running_sweep_obeys_from_the_next_suggestion_on(tmp_path: Path) -> None:
    spec = make_spec(trials=9, space=SPACE, suggester="random")
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    asked: list[int] = []

    def act(snapshot: Snapshot) -> None:
        done = sum(trial.state.finished for trial in snapshot.trials)
        if done == 3 and not asked:
            asked.append(len(snapshot.trials))
            pinned(tmp_path, "space.optimizer=sgd", "space.width=[64,128]")
        if done == 6 and len(asked) == 1:
            asked.append(len(snapshot.trials))
            enqueued = ["enqueue", "test", "lr=0.05", "optimizer=adam", "--store", str(tmp_path)]
            assert CliRunner().invoke(cli, enqueued).exit_code == 0

    snapshot = sweeps.run(
        spec, ledger=ledger, objective=objective, dispatcher="inline", on_change=act
    )
    trials = snapshot.trials[asked[0] :]
    given = [trial for trial in trials if trial.source == "enqueued"]
    assert [(trial.params["lr"], trial.params["optimizer"]) for trial in given] == [(0.05, "adam")]
    obeying = [trial for trial in trials if trial.source != "enqueued"]
    assert len(obeying) >= 3
    assert all(t.params["optimizer"] == "sgd" and 64 <= t.params["width"] <= 128 for t in obeying)  # type: ignore[operator]

    # Resumed, it still obeys, and fulfils no wish twice; released, it does not.
    more = make_spec(trials=12, space=SPACE, suggester="random")
    snapshot = sweeps.run(
        more, ledger=ledger, objective=objective, dispatcher="inline", resume=True
    )
    assert len([trial for trial in snapshot.trials if trial.source == "enqueued"]) == 1
    assert all(trial.params["optimizer"] == "sgd" for trial in snapshot.trials[9:])
    pinned(tmp_path, "space.optimizer=auto", "space.width=auto")
    more = make_spec(trials=30, space=SPACE, suggester="random")
    snapshot = sweeps.run(
        more, ledger=ledger, objective=objective, dispatcher="inline", resume=True
    )
    assert len({trial.params["optimizer"] for trial in snapshot.trials[12:]}) == 3
    assert ledger.state("test").limits == {}
    ledger.close()
