"""What automl writes, it reads back: the same configuration comes from each of its outputs."""

from __future__ import annotations

import json
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
from automl.config.overrides import read_setting
from automl.config.template import for_command
from automl.core import SweepSpec, Trial, parse_goals
from automl.ledger import Ledger
from automl.ledger.database import IN_MEMORY
from automl.report.recommendation import learned_space, recipe
from automl.workflows import beginning, steering

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
def test_texts_yaml_and_json_of_a_configuration_are_read_back(space: Space, seed: int) -> None:
    for params in space.sample(np.random.default_rng(seed), 2):
        words = [f"{name}={space.parameters[name].text(v)}" for name, v in params.items()]
        typed = dict(read_setting(word, space) for word in words if not word.endswith("="))
        assert {n: repr(v) for n, v in typed.items()}.items() <= {
            n: repr(v) for n, v in params.items()
        }.items()
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
    text, command = for_command(["python", "train.py", *words], "init.yaml")
    (tmp_path / "init.yaml").write_text(text)
    found = load(tmp_path / "init.yaml", command=f"-- {command}").spec.space.accept({})
    assert found == {name: numbers[name] for name in found}
    assert len(found) == sum(f"{{{name}}}" in command for name in numbers)


SPACE = Space(
    Choice("kind", ["a", "b", None], default="a"),
    Choice("batch", [16, 32], when={"kind": "b"}),
    Choice("flag", [True, 1, "1", "true"]),
    Choice("widths", [[64, 32], [64]]),
    Float("x", 0, 1, step=0.1),
    Int("n", 1, 2**50, log=True),
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
