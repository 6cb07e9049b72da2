"""What automl writes, it reads back: the same configuration comes from each of its outputs."""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import automl
from automl import Choice, Float, Int, Space
from automl.cli import cli
from automl.config import load
from automl.config.template import for_command, read_wandb
from automl.core import SweepSpec, Trial, parse_goals
from automl.errors import AutomlError, ConfigError
from automl.ledger import Ledger
from automl.ledger.database import IN_MEMORY
from automl.report.recommendation import learned_space, recipe
from automl.workflows import beginning, steering
from workers.command.arguments import Braces

sys.path.insert(0, str(Path(__file__).parents[1] / "search_spaces"))
from drawn import spaces

GOALS = "minimize loss"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(space=spaces(), seed=st.integers(0, 99))
def test_a_table_of_a_result_is_read_back(space: Space, seed: int, tmp_path: Path) -> None:
    drawn = space.sample(np.random.default_rng(seed), 4)
    with automl.Optimizer(space, GOALS, suggester="random") as optimizer:
        for number, params in enumerate(drawn):
            optimizer.add(params, number / 3)
        snapshot = automl.core.Snapshot.of(optimizer._writer.state, "finished", 0.0)
    table = tmp_path / "table.csv"
    automl.Result(snapshot).to_pandas().to_csv(table, index=False)
    with closing(Ledger.open(IN_MEMORY, create=True)) as ledger:
        found = beginning.read(table, space, parse_goals(GOALS), ledger)
    assert not found.left_out
    assert [repr(one.params) for one in found.trials] == [repr(params) for params in drawn]
    assert [one.metrics["loss"] for one in found.trials] == [n / 3 for n in range(4)]


@settings(max_examples=30, deadline=None)
@given(spaces(), st.integers(0, 99))
def test_yaml_and_json_of_a_configuration_are_read_back(space: Space, seed: int) -> None:
    for params in space.sample(np.random.default_rng(seed), 2):
        listed = json.loads(json.dumps(params))
        assert repr(space.accept(yaml.safe_load(yaml.safe_dump(listed)))) == repr(params)
    assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(space=spaces(), seed=st.integers(0, 99))
def test_an_exported_configuration_is_the_trial(space: Space, seed: int, tmp_path: Path) -> None:
    spec = SweepSpec(name="s", space=space, goals=parse_goals(GOALS))
    params = space.sample(np.random.default_rng(seed))[0]
    file = tmp_path / "config.yaml"
    file.write_text(recipe(spec, Trial(number=3, params=params)))
    found = load(file, objective=True).spec.space
    assert repr(found.accept({})) == repr(params)
    assert repr(space.accept(found.sample(np.random.default_rng(0))[0])) == repr(params)
    file.write_text(learned_space(spec))
    assert load(file, objective=True).spec.space == space


NUMBERS = st.floats(1e-300, 1e300) | st.floats(1e-6, 1) | st.integers(1, 1024)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(st.sampled_from(["lr", "dropout", "layers", "model.size"]), NUMBERS, min_size=1)
)
def test_trial_0_of_what_init_writes_is_its_command(
    tmp_path: Path, numbers: dict[str, float]
) -> None:
    words = [word for name, value in numbers.items() for word in (f"--{name}", repr(value))]
    (tmp_path / "init.yaml").write_text(for_command(["python", "train.py", *words], "init.yaml"))
    spec = load(tmp_path / "init.yaml").spec
    found = spec.space.accept({})
    assert found == {name: numbers[name] for name in found}
    assert len(found) == sum(f"{{{name}}}" in spec.origin.command for name in numbers)


SPACE = Space(
    Choice("kind", ["a", "b", None], default="a"),
    Choice("batch", [16, 32], when={"kind": "b"}),
    Choice("flag", [True, 1, "1", "true"]),
    Choice("widths", [[64, 32], [64]]),
    Float("x", 0, 1, step=0.1),
    Int("n", 1, 2**50, log=True),
    Choice("state", ["ny", "fail"]),
    Float("value", 0, 1),
    Int("number", 0, 9),
    Int("params.number", 0, 9),
    Choice("failure", ["rate", "time"]),
)


def test_every_output_of_a_sweep_is_a_configuration_again(tmp_path: Path) -> None:
    store = str(tmp_path)
    options: dict[str, Any] = {"dispatcher": "inline", "progress": False, "store": store}
    result = automl.sweep(
        lambda trial: trial.params["x"],
        SPACE,
        GOALS,
        trials=6,
        suggester="random",
        name="s",
        **options,
    )
    own = [repr(dict(trial.params)) for trial in result.trials]
    listed = json.loads(CliRunner().invoke(cli, ["trials", "s", "--store", store, "--json"]).stdout)
    assert [repr(SPACE.accept(one["params"])) for one in listed] == own
    best = json.loads(CliRunner().invoke(cli, ["best", "s", "--store", store, "--json"]).stdout)
    assert repr(SPACE.accept(best["params"])) == own[result.best.number]
    result.to_pandas().to_csv(tmp_path / "s.csv", index=False)
    again = automl.sweep(
        lambda trial: trial.params["x"],
        SPACE,
        GOALS,
        trials=1,
        suggester="random",
        name="t",
        prior=[str(tmp_path / "s.csv"), "sweep:s"],
        enqueue=[best["params"]],
        **options,
    )
    added = [repr(dict(trial.params)) for trial in again.trials if trial.source == "added"]
    assert added == own * 2


@pytest.mark.parametrize("value", ["2", 2.0, np.int64(2), np.float32(2)])
def test_every_entrance_gives_the_own_form(value: Any, tmp_path: Path) -> None:
    space = Space(Int("n", 0, 9), Float("x", 0, 1, step=0.1, default=0.5))
    seen: list[Any] = []

    def objective(trial: Any) -> float:
        seen.append(dict(trial.params))
        return float(trial.params["n"])

    options: dict[str, Any] = {"dispatcher": "inline", "progress": False, "store": str(tmp_path)}
    automl.sweep(
        objective, space, GOALS, trials=1, name="s", enqueue={"n": value, "x": 0.1 * 3}, **options
    )
    assert repr(seen) == "[{'n': 2, 'x': 0.3}]"
    with automl.Optimizer(space, GOALS) as optimizer:
        trial = optimizer.add({"n": value, "x": "0.3"}, 1.0)
    assert repr(dict(trial.params)) == "{'n': 2, 'x': 0.3}"


def test_a_budget_counts_where_a_trial_begins(tmp_path: Path) -> None:
    space = Space(Float("x", 0, 1, default=0.5))
    options: dict[str, Any] = {"dispatcher": "inline", "progress": False, "store": str(tmp_path)}
    wanted = [{"x": number / 10} for number in range(4)]
    run = lambda trials, **more: automl.sweep(  # noqa: E731
        lambda trial: trial.params["x"], space, GOALS, trials=trials, name="s", **options, **more
    )
    with pytest.raises(automl.UsageError, match="3 trials, and with the 4 enqueued ones there are"):
        run(3, enqueue=wanted)
    first = run(3, enqueue=wanted[:2])
    assert [str(trial.state) for trial in first.trials] == ["completed"] * 3
    with closing(Ledger.open(str(tmp_path))) as ledger:
        steering.enqueue(ledger, "s", {"x": 0.2})
        steering.enqueue(ledger, "s", {"x": 0.3})
    second = run(4, resume=True)
    assert [trial.params["x"] for trial in second.trials if trial.attempts] == [0.5, 0.0, 0.1, 0.2]


# Each kind of fault that configurations of other tools' users have shown, at more entrances.

INFEASIBLE = {
    "a % 7 == 5": (Int("a", 0, 3),),
    "a * b >= 5": (Float("a", 0, 1), Float("b", 0, 4)),
    "a == 'x' and b > 2": (Choice("a", ["x", "y"]), Int("b", 0, 2)),
}


@pytest.mark.parametrize("rule", INFEASIBLE)
def test_a_space_without_a_configuration_is_refused_everywhere(rule: str, tmp_path: Path) -> None:
    space = Space(*INFEASIBLE[rule], constraints=[rule])
    options: Any = {"dispatcher": "inline", "progress": False, "store": str(tmp_path)}
    for begin in (
        lambda: automl.sweep(lambda trial: 1.0, space, "minimize loss", trials=2, **options),
        lambda: automl.Optimizer(space, "minimize loss"),
        lambda: automl.simulate(lambda params: [], space, "minimize loss", seconds=9),
    ):
        with pytest.raises(AutomlError) as caught:
            begin()
        assert rule in str(caught.value)


@pytest.mark.parametrize("metric", ["val loss", "損失", "0/loss", "a b c"])
def test_a_metric_that_may_be_reported_may_be_a_goal(metric: str, tmp_path: Path) -> None:
    with automl.Optimizer(Space(Float("x", 0, 1)), f"minimize {metric}") as optimizer:
        optimizer.tell(optimizer.ask(), {metric: 0.5})
        assert optimizer.best.value == 0.5
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(f"metric: {{name: {metric!r}}}\nparameters: {{x: {{min: 0.0, max: 1.0}}}}\n")
    (tmp_path / "ours.yaml").write_text(read_wandb(theirs).text("theirs.yaml", "ours.yaml"))
    assert str(load(tmp_path / "ours.yaml", objective=True).spec.goals[0]) == f"minimize {metric}"


@pytest.mark.parametrize("given", ["{value: true}", "{values: [false, 1]}", "{values: [true]}"])
def test_a_program_sees_booleans_as_wandb_spells_them(given: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(f"program: t.py\nparameters: {{flag: {given}, x: {{values: [1, 2]}}}}\n")
    found = read_wandb(path)
    value = found.space["flag"][0]
    assert Braces({"flag": value}).fill(["--flag={flag}"]) == [f"--flag={value}"]
    assert value in ("True", "False")
    assert "flag: booleans are the texts True and False, as in W&B" in found.notes


@pytest.mark.parametrize("value", [-1e-5, -3.25e-7, -1e-300, -2.5e20])
def test_a_number_below_zero_is_no_option(value: float) -> None:
    (text,) = Braces({"shift": value}).fill(["{shift}"])
    assert float(text) == value
    assert "e" not in text


@pytest.mark.parametrize("wrong", ["[08, 010, 16]", "[08, null, 1]", "{choices: [.5., 09, 07]}"])
def test_what_is_said_of_a_wrong_item_is_said_once(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"goals: minimize loss\nspace:\n  bs: {wrong}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", objective=True)
    lines = [line for line in str(caught.value).splitlines() if "space.bs" in line]
    assert len(lines) == wrong.count(" 0") + wrong.count("[0")
    assert all("leading zero" in line for line in lines)


@pytest.mark.parametrize(
    "listed", [[1e-3, math.inf], [math.nan, 2e-3], [1e-3, -math.inf, "1e-3"], ["None", 1.5, None]]
)
def test_lists_that_a_grid_search_takes(listed: list[Any]) -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator

    from automl.integrations.sklearn import AutomlSearchCV

    class Seen(BaseEstimator):  # type: ignore[misc]
        def __init__(self, tol: Any = None) -> None:
            self.tol = tol

        def fit(self, data: Any, target: Any = None) -> Seen:
            return self

        def score(self, data: Any, target: Any = None) -> float:
            return float([*map(repr, listed)].index(repr(self.tol)))

    search = AutomlSearchCV(Seen(), {"tol": listed}, n_iter=len(listed), cv=2, random_state=0)
    search.fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    assert repr(search.best_params_["tol"]) == repr(listed[-1])


def _in_a_fork(optimizer: automl.Optimizer, trial: Trial, results: Any) -> None:
    for use in (
        optimizer.ask,
        lambda: optimizer.tell(trial, 1.0),
        lambda: optimizer.report(trial, step=1, loss=0.5),
        lambda: optimizer.add({"x": 0.5}, 1.0),
    ):
        try:
            use()
            results.put("no error")
        except AutomlError as error:
            results.put(str(error))


@pytest.mark.parametrize("stored", [True, False])
def test_an_optimizer_that_a_fork_has_copied_is_noticed(stored: bool, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    options: Any = {"store": str(tmp_path), "name": "o"} if stored else {}
    with automl.Optimizer(Space(Float("x", 0, 1)), "minimize loss", **options) as optimizer:
        trial, results = optimizer.ask(), context.SimpleQueue()
        child = context.Process(target=_in_a_fork, args=(optimizer, trial, results))
        child.start()
        said = [results.get() for _ in range(4)]
        child.join(30)
        assert all("fork" in one for one in said), said
        optimizer.tell(trial, 1.0)
        assert len(optimizer.trials) == 1
    if stored:
        with closing(Ledger.open(str(tmp_path), readonly=True)) as ledger:
            assert len(ledger.trials("o")) == 1
