"""The promises of every workload.

A plugin runs them with `pytest --automl-conformance`: each workload of an entry point is tested
with what it declares as `smallest`. Values that start a compiler are left out: they take a minute
each.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from search_spaces import Choice, Float, Space
from search_spaces.errors import DataError
from search_spaces.hardware import detect
from search_spaces.parameters import Parameter
from workers.context import Context
from workers.export import export
from workers.parallel import num_ranks
from workers.protocol import Assignment, Ending, Outcome, Report, StopRequest
from workers.run import run
from workers.runtime.processes import run_gang
from workers.workload import Workload
from workers.workloads import WORKLOADS

COMPILED = {("compile", "default"), ("compile", "reduce-overhead"), ("graph", "compiled")}


@pytest.fixture(params=WORKLOADS.installed())
def name(request: pytest.FixtureRequest) -> str:
    """The name of the workload that is tested."""
    return str(request.param)


@pytest.fixture
def kind(name: str) -> type[Workload]:
    """The class of the workload."""
    found = WORKLOADS.get(name)
    assert found.name == name
    assert found.smallest, "declare `smallest`: data and options with which a run takes a second"
    return found


def default(kind: type[Workload], space: Space) -> dict[str, Any]:
    """The default configuration, without what the smallest setting fixes."""
    params = space.default()
    assert params is not None, "trial 0 needs a default of every parameter"
    return {key: value for key, value in params.items() if key not in kind.smallest["fixed"]}


def assignment(
    kind: type[Workload], folder: Path, params: Mapping[str, Any] | None = None, **more: Any
) -> Assignment:
    """The attempt of a trial; by default with the default configuration."""
    given = default(kind, kind.space(detect())) if params is None else params
    fixed = {**kind.smallest["fixed"], **more.pop("fixed", {})}
    data = {**kind.smallest["data"], **more.pop("data", {})}
    ranks = num_ranks(given, fixed)
    return Assignment(
        "s", 0, 1, given, kind.name, str(folder), data, fixed, num_ranks=ranks, **more
    )


def start(
    one: Assignment, stop_requested: Callable[[], StopRequest | None] = lambda: None
) -> tuple[Outcome, list[Report]]:
    """Run an attempt, in this process or as several ranks; its end and its reports."""
    reports: list[Report] = []
    if one.num_ranks > 1:
        return run_gang(one, reports.append, stop_requested), reports
    return run(Context(one, reports.append, stop_requested)), reports


def timeless(kind: type[Workload], metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of quality, which a seed repeats exactly."""
    quality = {metric.name for metric in kind.metrics if metric.aspects == {"quality"}}
    return {key: value for key, value in metrics.items() if key in quality}


def test_a_run_reports_its_goals_and_declared_metrics_in_finite_numbers(
    kind: type[Workload], tmp_path: Path
) -> None:
    """A run ends, and each metric that it reports is declared and finite."""
    outcome, reports = start(assignment(kind, tmp_path))
    assert outcome.ending is Ending.COMPLETED, outcome.details
    assert reports
    goals = {goal.split()[1] for goal in kind.goals}
    declared = {metric.name for metric in kind.metrics}
    for metrics in (outcome.metrics, *(report.metrics for report in reports)):
        assert goals <= metrics.keys() <= declared
        assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert [r.step for r in reports] == sorted(r.step for r in reports)
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes > 0


def test_its_goals_agree_with_its_declared_metrics(kind: type[Workload]) -> None:
    """A goal has the direction of its metric, which is declared once."""
    directions = {metric.name: metric.direction for metric in kind.metrics}
    assert len(directions) == len(kind.metrics), "a metric is declared once"
    for goal in kind.goals:
        direction, name = goal.split()[:2]
        assert directions[name] == direction


def test_a_seed_makes_a_run(kind: type[Workload], tmp_path: Path) -> None:
    """The same seed gives the same numbers, another seed others."""
    first, second = (
        start(assignment(kind, tmp_path / str(i), seed=3))[0].metrics for i in range(2)
    )
    assert timeless(kind, first) == timeless(kind, second)
    other = start(assignment(kind, tmp_path / "other", seed=4))[0].metrics
    assert "train_loss" not in first or timeless(kind, other) != timeless(kind, first)


@pytest.mark.parametrize("how", list(StopRequest))
def test_a_request_to_end_is_followed_and_resumed_from(
    kind: type[Workload], tmp_path: Path, how: StopRequest
) -> None:
    """A run ends soon after it is told to, and goes on to the same result."""
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1

    whole, reports = start(assignment(kind, tmp_path / "whole"), count)
    assert looks >= len(reports)
    half = looks // 2
    looks = 0

    def stop_requested() -> StopRequest | None:
        count()
        return how if looks >= half else None

    first, _ = start(assignment(kind, tmp_path / "parts"), stop_requested)
    assert (
        str(first.ending)
        == {"stop": "stopped", "pause": "paused", "interrupt": "interrupted"}[str(how)]
    )
    assert looks - half <= 3, "it went on after the request"
    second, _ = start(assignment(kind, tmp_path / "parts", resume=True))
    assert second.ending is Ending.COMPLETED, second.details
    assert timeless(kind, second.metrics) == timeless(kind, whole.metrics)


def values(parameter: Parameter) -> list[Any]:
    """What is tried of a parameter: each choice, or the low end and one more."""
    if isinstance(parameter, Choice):
        return list(parameter.choices)
    low, high = parameter.from_unit(0.0), parameter.from_unit(1.0)
    return [low, high if isinstance(parameter, Float) else parameter.from_unit(0.3)]


def with_value(
    space: Space, params: Mapping[str, Any], name: str, value: Any
) -> dict[str, Any] | None:
    """The configuration with one parameter changed and its parents set; None if illegal."""
    changed, todo = {**params, name: value}, [name]
    while todo:
        for parent, allowed in space.parameters[todo.pop()].when.items():
            if changed.get(parent) not in allowed:
                changed[parent] = allowed[0]
                todo.append(parent)
    full = {**(space.default() or {}), **changed}
    for key in space.active(full):
        full.setdefault(key, space.parameters[key].middle())
    full = {key: full[key] for key in space.active(full)}
    if not space.legal(full):
        return None
    return {
        key: v
        for key, v in full.items()
        if key in changed or key in params or key not in (space.default() or {})
    }


def covering(space: Space, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Few configurations that together have each value that is legal for one process."""
    pairs = [(name, value) for name, one in space.parameters.items() for value in values(one)]
    left = [pair for pair in pairs if pair not in COMPILED]
    while left:
        params = dict(base)
        taken: list[tuple[str, Any]] = []
        for name, value in left:
            changed = with_value(space, params, name, value)
            kept = [*taken, (name, value)]
            if changed is None or num_ranks(changed, {}) > 1:
                continue
            if all(key in changed and changed[key] == wanted for key, wanted in kept):
                params, taken = changed, kept
        if not taken:
            return
        yield params
        left = [pair for pair in left if pair not in taken]


def test_every_legal_value_runs_a_step(kind: type[Workload], tmp_path: Path) -> None:
    """Each value that is legal for one process trains an update."""
    space = kind.space(detect())
    tried = set()
    for number, params in enumerate(covering(space, default(kind, space))):
        step = {"max_epochs": 1, "max_updates": 1, "passes": 1}
        outcome, _ = start(assignment(kind, tmp_path / str(number), params, fixed=step))
        assert outcome.ending is Ending.COMPLETED, (params, outcome.message, outcome.details)
        tried |= {(name, repr(value)) for name, value in params.items()}
    assert len(tried) > len(space.parameters)


def run_each(context: Context) -> dict[str, float]:
    """Several runs one after the other, because starting processes takes longer than a run."""
    a = context.assignment
    for index, params in enumerate(a.fixed["each"]):
        folder = Path(a.folder) / str(index)
        folder.mkdir(exist_ok=True)
        one = Assignment(**{**vars(a), "params": params, "folder": str(folder), **a.fixed["of"]})
        meeting = f"file://{folder / 'meeting'}"
        outcome = run(
            Context(one, rank=context.rank, world_size=context.world_size, rendezvous=meeting)
        )
        assert outcome.ending is Ending.COMPLETED, (params, outcome.message, outcome.details)
    return {"runs": len(a.fixed["each"])}


def test_every_strategy_runs_a_step(kind: type[Workload], tmp_path: Path) -> None:
    """Each strategy of the space trains an update on two ranks."""
    space = kind.space(detect())
    if "parallelism" not in space.parameters:
        pytest.skip("one process only")
    each = []
    for value in values(space.parameters["parallelism"]):
        params = with_value(space, default(kind, space), "parallelism", value)
        if params is None:  # it needs more of another parameter: the largest will do
            largest = {n: values(p)[-1] for n, p in space.parameters.items() if n == "partitions"}
            params = with_value(space, {**default(kind, space), **largest}, "parallelism", value)
        if params is not None and num_ranks(params, {}) == 2:
            # Single ranks tried every value already; this one might not work with several ranks.
            unusual = (
                {"memory_format": "channels_last"} if "memory_format" in space.parameters else {}
            )
            each.append({**params, **unusual})
    assert each
    fixed = {**kind.smallest["fixed"], "max_epochs": 1, "max_updates": 1}
    of = {"workload": kind.name, "data": dict(kind.smallest["data"]), "fixed": fixed}
    one = Assignment(
        "s", 0, 1, {}, None, str(tmp_path), fixed={"each": each, "of": of}, num_ranks=2
    )
    outcome = run_gang(one, lambda report: None, lambda: None, run_each)
    assert outcome.ending is Ending.COMPLETED, (outcome.message, outcome.details)
    assert outcome.metrics["runs"] == len(each)


def test_data_that_is_not_there_is_refused_before_anything_runs(kind: type[Workload]) -> None:
    """A data set that is unknown is one error of `check`."""
    kind.check(kind.smallest["data"], kind.smallest["fixed"])
    for section in ({"name": "no-such-data"}, {"name": "builtin-x", "dir": "/nowhere"}):
        with pytest.raises(DataError):
            kind.check(section, {})


def test_it_is_exported(kind: type[Workload], tmp_path: Path) -> None:
    """A workload with weights writes them, its configuration and a card."""
    if kind.export is Workload.export:
        pytest.skip("it has no weights")
    one = assignment(kind, tmp_path / "trial", fixed={"max_epochs": 1, "passes": 1})
    outcome, _ = start(one)
    workload = kind(one.params, one.data, one.fixed, seed=one.seed)
    target = tmp_path / "export"
    files = export(workload, Path(one.folder), target, outcome.metrics)
    assert {path.name for path in target.iterdir()} == files.keys()
    assert load_file(target / "model.safetensors")
    card = (target / "README.md").read_text()
    assert all(name in card for name in (*files, *outcome.metrics))


def test_checking_imports_no_torch(name: str) -> None:
    """`automl` checks a configuration before it loads anything large."""
    code = (
        "import sys\nfrom workers.workloads import WORKLOADS\n"
        f"kind = WORKLOADS.get({name!r})\nkind.check(kind.smallest.get('data', {{}}), {{}})\n"
        "assert 'torch' not in sys.modules"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **paths})
