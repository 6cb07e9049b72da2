"""Each wrong argument of a public function ends in one `UsageError` that names the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from objectives import SPACE

import automl
from automl.errors import UsageError


class Mute:
    """A value that cannot be shown, as 10**5000 cannot."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


WRONG: list[Any] = [
    *(b"x", [3], {3: 3}, object(), float("nan"), 10**400, [None], {"x"}, 3.5, -1),
    *(10**5000, Mute(), [Mute()]),
]


def objective(trial: Any) -> dict[str, float]:
    return {"loss": trial.params["lr"]}


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    yield 1.0, {"loss": params["lr"]}


def swept(folder: Path, **given: Any) -> automl.Result:
    options: dict[str, Any] = {
        "objective": objective,
        "space": SPACE,
        "goals": "minimize loss",
        "trials": 1,
        "suggester": "random",
        "dispatcher": "inline",
        "store": folder / "runs",
        "progress": False,
    }
    return automl.sweep(**{**options, **given})


def simulated(folder: Path, **given: Any) -> automl.Result:
    options = {"replay": replay, "space": SPACE, "goals": "minimize loss", "trials": 1}
    return automl.simulate(**{**options, "suggester": "random", **given})


def asked(folder: Path, **given: Any) -> automl.Optimizer:
    options: dict[str, Any] = {"space": SPACE, "goals": "minimize loss", "suggester": "random"}
    return automl.Optimizer(**{**options, **given})


COMMON = "space goals constraints suggester seed store prior metrics"
REFUSED = [
    (swept, f"{COMMON} objective trials workers budget stopper dispatcher resources name resume"),
    (swept, "enqueue"),
    (simulated, f"{COMMON} replay workers seconds trials budget stopper max_steps max_retries"),
    (simulated, "mean_lifetime"),
    (asked, f"{COMMON} name"),
]
# What of WRONG is right for an argument.
RIGHT: dict[str, list[Any]] = {
    "seed": [-1],
    "budget": [3.5],
    "seconds": [3.5],
    "mean_lifetime": [3.5],
    "time": [3.5],
    "target": [3.5, -1],
}


@pytest.mark.parametrize(
    ("function", "name"), [(call, name) for call, names in REFUSED for name in names.split()]
)
def test_a_wrong_argument_is_refused(
    tmp_path: Path, function: Callable[..., Any], name: str
) -> None:
    for value in WRONG:
        if any(value is right or value == right for right in RIGHT.get(name, [])):
            continue
        with pytest.raises(UsageError) as caught:
            function(tmp_path, **{name: value})
        assert str(caught.value)


@pytest.mark.parametrize("part", ["trials", "time", "worker_time", "target"])
def test_a_wrong_part_of_a_budget_is_refused(tmp_path: Path, part: str) -> None:
    for value in WRONG:
        if value not in RIGHT.get("target" if part == "target" else "time", []) or part == "trials":
            with pytest.raises(UsageError):
                swept(tmp_path, trials=None, budget={part: value, "trials": 1} | {part: value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": 3}, r"objective must be a function, got 3 \(int\)"),
        ({"workers": "2"}, r"workers must be a whole number of at least 1, got '2'"),
        ({"trials": 2.5}, r"trials must be a whole number of at least 1, got 2.5"),
        ({"goals": 3}, r"goals must be a text such as 'minimize loss' or a list of them, got 3"),
        ({"resources": {"cpus": "all"}}, r"cpus of a slot must be a whole number"),
        ({"resources": {"gpu": 1}}, r"unknown key 'gpu' of a slot; did you mean 'gpus'"),
        ({"metrics": ["loss"]}, r"metrics must be an automl.Metric"),
        ({"store": 3}, r"store must be a folder or the URL of a database, got 3"),
        ({"resume": "yes"}, r"resume must be True or False, got 'yes'"),
        ({"dispatcher": 3}, r"a dispatcher is named by a text, got 3"),
        ({"budget": [3]}, r"budget must be a duration such as '10m', or a mapping"),
    ],
)
def test_the_message_says_what_and_which_value(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        swept(tmp_path, **given)


def test_what_is_reasonable_is_accepted(tmp_path: Path) -> None:
    result = swept(tmp_path, space={"lr": (0.0, 1.0)}, trials=np.int64(2), seed=np.int32(3))
    assert len(result.trials) == 2
    assert automl.load(result.name, tmp_path / "runs").best.value == result.best.value


def test_a_number_is_enough_for_a_single_goal() -> None:
    optimizer = asked(Path())
    assert optimizer.tell(optimizer.ask().number, 0.5).metrics["loss"] == 0.5
    assert optimizer.tell(optimizer.ask(), np.float32(0.25)).metrics["loss"] == 0.25
    assert optimizer.best is not None
    assert optimizer.best.value == 0.25
    several = asked(Path(), goals=["minimize loss", "minimize size"])
    with pytest.raises(UsageError, match=r"such as \{'loss': 0.5, 'size': 0.5\}; got 0.5"):
        several.tell(several.ask(), 0.5)


def test_the_methods_of_an_optimizer_refuse_what_is_wrong() -> None:
    optimizer = asked(Path())
    number = optimizer.ask().number
    calls: list[Callable[[Any], Any]] = [
        lambda value: optimizer.tell(value, 0.5),
        lambda value: optimizer.tell(number, {"loss": value}),
        lambda value: optimizer.report(value, 1, loss=0.5),
        lambda value: optimizer.report(number, value, loss=0.5),
        lambda value: optimizer.report(number, 1, loss=value),
        lambda value: optimizer.fail(value, "crashed"),
        lambda value: optimizer.fail(number, value),
        lambda value: optimizer.add(value, 0.5),
        lambda value: automl.load(value),
        lambda value: automl.Metric("loss", value),
        lambda value: automl.Metric("loss", None, value),
    ]
    for call in calls:
        for value in (b"x", [3], {3: 3}, object(), "x", [None]):
            with pytest.raises(UsageError):
                call(value)
