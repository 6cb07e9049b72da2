"""What every workload must hold, with what it declares as `smallest`."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from search_spaces import Choice
from search_spaces.errors import DataError
from search_spaces.hardware import detect
from workers.context import Context
from workers.export import export
from workers.parallel import num_ranks
from workers.protocol import Assignment, Ending, Outcome, Report, StopRequest
from workers.run import run
from workers.runtime.processes import run_gang
from workers.workload import Workload
from workers.workloads import WORKLOADS

ONE_UPDATE = {"max_epochs": 1, "max_updates": 1, "passes": 1}
TAKES_A_MINUTE = {("compile", "default"), ("compile", "reduce-overhead"), ("graph", "compiled")}


@pytest.fixture(params=WORKLOADS.names())
def kind(request: pytest.FixtureRequest) -> type[Workload]:
    return WORKLOADS.get(request.param)


def assignment(
    kind: type[Workload], folder: Path, params: Mapping[str, Any] | None = None, **more: Any
) -> Assignment:
    """The attempt of a trial; by default with the default configuration."""
    if params is None:
        params = kind.space(detect()).default()
        assert params is not None, "trial 0 needs a default of every parameter"
        params = {key: value for key, value in params.items() if key not in kind.smallest["fixed"]}
    fixed, data = {**kind.smallest["fixed"], **more.pop("fixed", {})}, kind.smallest["data"]
    ranks = num_ranks(params, fixed)
    return Assignment(
        "s", 0, 1, params, kind.name, str(folder), data, fixed, num_ranks=ranks, **more
    )


def start(
    one: Assignment, stop_requested: Callable[[], StopRequest | None] = lambda: None
) -> tuple[Outcome, list[Report]]:
    """Run an attempt, in this process or as several ranks; its end and its reports."""
    reports: list[Report] = []
    if one.num_ranks > 1:
        return run_gang(one, reports.append, stop_requested), reports
    return run(Context(one, reports.append, stop_requested)), reports


def quality(kind: type[Workload], metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a seed repeats exactly."""
    names = {metric.name for metric in kind.metrics if metric.aspects == {"quality"}}
    return {key: value for key, value in metrics.items() if key in names}


def test_a_run_reports_its_goals_and_declared_metrics_in_finite_numbers(
    kind: type[Workload], tmp_path: Path
) -> None:
    outcome, reports = start(assignment(kind, tmp_path))
    assert outcome.ending is Ending.COMPLETED, outcome.details
    directions = {metric.name: metric.direction for metric in kind.metrics}
    goals = {name: direction for direction, name, *_ in map(str.split, kind.goals)}
    assert goals.items() <= directions.items()
    for metrics in (outcome.metrics, *(report.metrics for report in reports)):
        assert goals.keys() <= metrics.keys() <= directions.keys()
        assert all(math.isfinite(value) for value in metrics.values()), metrics
    steps = [report.step for report in reports]
    assert steps == sorted(steps) != []
    assert outcome.peak_memory_bytes


def test_a_seed_makes_a_run(kind: type[Workload], tmp_path: Path) -> None:
    first, second, other = (
        quality(kind, start(assignment(kind, tmp_path / str(i), seed=seed))[0].metrics)
        for i, seed in enumerate((3, 3, 4))
    )
    assert first == second
    assert "train_loss" not in first or other != first


@pytest.mark.parametrize("how", list(StopRequest))
def test_a_request_to_end_is_followed_and_resumed_from(
    kind: type[Workload], tmp_path: Path, how: StopRequest
) -> None:
    looks: list[int] = []
    whole, reports = start(assignment(kind, tmp_path / "whole"), lambda: looks.append(1))
    half, endings = len(looks) // 2, {"stop": "stopped", "pause": "paused"}
    assert len(looks) >= len(reports)
    looks.clear()

    def stop_requested() -> StopRequest | None:
        looks.append(1)
        return how if len(looks) >= half else None

    first, _ = start(assignment(kind, tmp_path / "parts"), stop_requested)
    assert str(first.ending) == endings.get(str(how), "interrupted")
    assert len(looks) - half <= 3, "it went on after the request"
    second, _ = start(assignment(kind, tmp_path / "parts", resume=True))
    assert second.ending is Ending.COMPLETED, second.details
    assert quality(kind, second.metrics) == quality(kind, whole.metrics)


def covering(kind: type[Workload], ranks: int, names: set[str]) -> Iterator[dict[str, Any]]:
    """A few configurations for so many ranks that hold the values of these parameters."""
    left: list[tuple[set[Any], dict[str, Any]]] = []
    for params in kind.space(detect()).sample(np.random.default_rng(0), 500):
        slow = TAKES_A_MINUTE.intersection(params.items())
        if num_ranks(params, {}) == ranks and not slow:
            left.append(({pair for pair in params.items() if pair[0] in names}, params))
    while left:
        pairs, params = max(left, key=lambda one: len(one[0]))
        if not pairs:
            return
        yield params
        left = [(others - pairs, one) for others, one in left]


def test_every_choice_runs_an_update(kind: type[Workload], tmp_path: Path) -> None:
    parameters = kind.space(detect()).parameters.items()
    choices = {name for name, parameter in parameters if isinstance(parameter, Choice)}
    for number, params in enumerate(covering(kind, 1, choices)):
        outcome, _ = start(assignment(kind, tmp_path / str(number), params, fixed=ONE_UPDATE))
        assert outcome.ending is Ending.COMPLETED, (params, outcome.message, outcome.details)


def run_each(context: Context) -> dict[str, float]:
    """Several runs one after the other, because starting processes takes longer than a run."""
    a = context.assignment
    for index, params in enumerate(a.fixed["each"]):
        folder = Path(a.folder) / str(index)
        folder.mkdir(exist_ok=True)
        one = Assignment(**{**vars(a), "params": params, "folder": str(folder), **a.fixed["of"]})
        meeting = f"file://{folder / 'meeting'}"
        outcome = run(Context(one, rank=context.rank, world_size=2, rendezvous=meeting))
        assert outcome.ending is Ending.COMPLETED, (params, outcome.message, outcome.details)
    return {"runs": len(a.fixed["each"])}


def test_every_strategy_runs_an_update_on_two_ranks(kind: type[Workload], tmp_path: Path) -> None:
    each = list(covering(kind, 2, {"parallelism"}))
    if not each:
        pytest.skip("one process only")
    fixed, data = {**kind.smallest["fixed"], **ONE_UPDATE}, dict(kind.smallest["data"])
    of = {"workload": kind.name, "data": data, "fixed": fixed}
    each_of = {"each": each, "of": of}
    one = Assignment("s", 0, 1, {}, None, str(tmp_path), fixed=each_of, num_ranks=2)
    outcome = run_gang(one, lambda report: None, lambda: None, run_each)
    assert outcome.metrics == {"runs": len(each)}, (outcome.message, outcome.details)


def test_data_that_is_not_there_is_refused_before_anything_is_loaded(kind: type[Workload]) -> None:
    for section in ({"name": "no-such-data"}, {"name": "builtin-x", "dir": "/nowhere"}):
        with pytest.raises(DataError):
            kind.check(section, {})
    code = (
        "import sys\nfrom workers.workloads import WORKLOADS\n"
        f"kind = WORKLOADS.get({kind.name!r})\nkind.check(kind.smallest['data'], {{}})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_exported(kind: type[Workload], tmp_path: Path) -> None:
    if kind.export is Workload.export:
        pytest.skip("it has no weights")
    one = assignment(kind, tmp_path / "trial", fixed={"max_epochs": 1, "passes": 1})
    outcome, _ = start(one)
    workload, target = kind(one.params, one.data, one.fixed, seed=one.seed), tmp_path / "export"
    files = export(workload, Path(one.folder), target, outcome.metrics)
    assert {path.name for path in target.iterdir()} == files.keys()
    assert load_file(target / "model.safetensors")
    card = (target / "README.md").read_text()
    assert all(name in card for name in (*files, *outcome.metrics))
