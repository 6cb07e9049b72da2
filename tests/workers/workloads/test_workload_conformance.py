"""What every workload must hold, with what it declares as `smallest`; what they share beside."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from strategies import run_all

from automl.config import load
from search_spaces import Choice
from search_spaces.errors import DataError, UsageError
from search_spaces.hardware import detect
from workers.context import Context
from workers.device.peak_memory import PeakMemory
from workers.export import export
from workers.parallel import num_ranks
from workers.protocol import Assignment, Ending, Outcome, Report, StopRequest
from workers.run import run
from workers.runtime.processes import run_gang
from workers.workload import Workload
from workers.workloads import WORKLOADS
from workers.workloads.sentiment import Sentiment, data

ONE_UPDATE = {"max_epochs": 1, "max_updates": 1, "passes": 1}
TAKES_A_MINUTE = {("compile", "default"), ("compile", "reduce-overhead"), ("graph", "compiled")}
REAL = {  # where the data are, and what trial 0 changes of the published setting
    "imdb": ("imdb", {"batching", "layout"}),
    "cifar10": ("cifar10", set()),
    "fb15k-237": ("kg/FB15k-237", {"evaluate_epochs"}),
    "wn18rr": ("kg/WN18RR", {"max_epochs", "regularization"}),
}
# An attempt of trial 0: how it ended, its reports, how often it looked for a request.
Attempt = tuple[Assignment, Outcome, list[Report], int]
CONFIGS = Path(__file__).parents[3] / "configs" / "real"


@pytest.fixture(params=WORKLOADS.names(), scope="module")
def kind(request: pytest.FixtureRequest) -> type[Workload]:
    return WORKLOADS.get(request.param)


@pytest.fixture(scope="module")
def whole(kind: type[Workload], tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    return start(assignment(kind, tmp_path_factory.mktemp(kind.name)))


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
    one: Assignment, stop_requested: Callable[[int], StopRequest | None] = lambda looks: None
) -> Attempt:
    reports: list[Report] = []
    looks: list[int] = []

    def requested() -> StopRequest | None:
        looks.append(1)
        return stop_requested(len(looks))

    if one.num_ranks > 1:
        outcome = run_gang(one, reports.append, requested)
    else:
        outcome = run(Context(one, reports.append, requested))
    return one, outcome, reports, len(looks)


def quality(kind: type[Workload], metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a seed repeats exactly."""
    names = (metric.name for metric in kind.metrics if metric.aspects == {"quality"})
    return {name: metrics[name] for name in names if name in metrics}


def test_a_run_reports_its_goals_and_declared_metrics_in_finite_numbers(
    kind: type[Workload], whole: Attempt
) -> None:
    one, outcome, reports, _ = whole
    assert all(kind.defaults.get(name, value) == value for name, value in one.params.items())
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


def test_another_seed_makes_another_run(
    kind: type[Workload], whole: Attempt, tmp_path: Path
) -> None:
    _, other, *_ = start(assignment(kind, tmp_path, seed=4))
    same = quality(kind, other.metrics) == quality(kind, whole[1].metrics)
    assert "train_loss" not in other.metrics or not same


def test_requests_to_end_are_followed_and_resumed_from(
    kind: type[Workload], whole: Attempt, tmp_path: Path
) -> None:
    # A run in four attempts is the whole run, so a seed makes a run.
    _, outcome, reports, looks = whole
    endings = {StopRequest.STOP: Ending.STOPPED, StopRequest.PAUSE: Ending.PAUSED}
    limit = max(2, looks // 4)
    assert looks >= len(reports)
    for number, how in enumerate(StopRequest):
        one = assignment(kind, tmp_path, resume=number > 0)
        _, part, _, looks = start(one, lambda looks, how=how: how if looks >= limit else None)
        assert part.ending is endings.get(how, Ending.INTERRUPTED), part.message
        assert looks - limit <= 3, "it went on after the request"
    _, last, *_ = start(assignment(kind, tmp_path, resume=True))
    assert last.ending is Ending.COMPLETED, last.details
    assert quality(kind, last.metrics) == quality(kind, outcome.metrics)


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
    words = {  # each may run other code; numbers are sizes
        name
        for name, parameter in parameters
        if isinstance(parameter, Choice) and isinstance(parameter.choices[0], str | bool)
    }
    for number, params in enumerate(covering(kind, 1, words)):
        one = assignment(kind, tmp_path / str(number), params, fixed=ONE_UPDATE)
        _, outcome, *_ = start(one)
        assert outcome.ending is Ending.COMPLETED, (params, outcome.message, outcome.details)


def one_update(name: str, context: Context) -> Mapping[str, float]:
    kind = WORKLOADS.get(name)
    fixed = {**kind.smallest["fixed"], **ONE_UPDATE}
    return kind(context.params, kind.smallest["data"], fixed, seed=context.seed).run(context)


def test_every_strategy_runs_an_update_on_two_ranks(kind: type[Workload], tmp_path: Path) -> None:
    each = list(covering(kind, 2, {"parallelism"}))
    if not each:
        pytest.skip("one process only")
    for params, found in zip(
        each, run_all(tmp_path, each, 2, partial(one_update, kind.name)), strict=True
    ):
        assert found["failure"] is None, (params, found["message"], found["traceback"])


def test_data_that_is_not_there_is_refused_before_anything_is_loaded() -> None:
    code = """if True:
        import sys
        from search_spaces.errors import DataError
        from workers.workloads import WORKLOADS
        for name in WORKLOADS.names():
            kind = WORKLOADS.get(name)
            kind.check(kind.smallest["data"], {})
            for section in ({"name": "no-such-data"}, {"name": "builtin-x", "dir": "/nowhere"}):
                try:
                    kind.check(section, {})
                except DataError:
                    continue
                raise SystemExit(f"{name} takes {section}")
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_exported(kind: type[Workload], whole: Attempt, tmp_path: Path) -> None:
    one, outcome, *_ = whole
    target = tmp_path / "export"
    workload = kind(one.params, one.data, one.fixed, seed=one.seed)
    files = export(workload, Path(one.folder), target, outcome.metrics)
    assert {path.name for path in target.iterdir()} == files.keys()
    assert load_file(target / "model.safetensors")
    card = (target / "README.md").read_text()
    assert all(name in card for name in (*files, *outcome.metrics))


def test_what_reading_raises_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "load", Mock(side_effect=DataError("line 3 is torn")))
    outcome = run(Context(Assignment("s", 0, 1, {}, "sentiment", str(tmp_path))))
    assert outcome.ending is Ending.FAILED
    assert "line 3 is torn" in outcome.message


def test_data_that_are_kept_are_no_trials_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(data, "load", lambda section: kept.append(torch.ones(50_000_000)))
    context = Context(Assignment("s", 0, 1, {}, "sentiment", str(tmp_path)))
    context.memory = PeakMemory(torch.device("cpu"))
    Sentiment({}, {}, {}).read(context)
    assert kept[0].nbytes == 200_000_000
    assert context.memory.bytes() < 50_000_000


def test_fixed_options_of_another_type_are_refused() -> None:
    with pytest.raises(UsageError, match=r"fixed\.length is of type int"):
        Sentiment.check({}, {"length": "long"})


@pytest.mark.parametrize("name", REAL)
def test_trial_0_on_real_data_is_the_published_setting(name: str, data_dir: Path) -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(REAL)
    spec = load(CONFIGS / f"{name}.yaml", [f"data.dir={data_dir / REAL[name][0]}"]).spec
    defaults = WORKLOADS.get(spec.workload).defaults
    chosen = {**spec.fixed, **(spec.space.default() or {})}
    assert {key for key in chosen if defaults.get(key, chosen[key]) != chosen[key]} == REAL[name][1]
