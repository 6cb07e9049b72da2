"""What the workloads share beside their interface, and the configurations for real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from automl.config import load
from search_spaces.errors import DataError, UsageError
from workers.context import Context
from workers.device.peak_memory import PeakMemory
from workers.protocol import Assignment, Ending
from workers.run import run
from workers.workloads import WORKLOADS
from workers.workloads.sentiment import Sentiment, data

REAL = {  # where the data are, and what trial 0 changes of the published setting
    "imdb": ("imdb", {"batching", "layout"}),
    "cifar10": ("cifar10", set()),
    "fb15k-237": ("kg/FB15k-237", {"evaluate_epochs"}),
    "wn18rr": ("kg/WN18RR", {"max_epochs", "regularization"}),
}
CONFIGS = Path(__file__).parents[3] / "configs" / "real"


def started(folder: Path, halted: Any = lambda: None) -> Any:
    return run(Context(Assignment("s", 0, 1, {}, "sentiment", str(folder)), stop_requested=halted))


def test_what_reading_raises_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(section: object) -> None:
        raise DataError("line 3 is torn")

    monkeypatch.setattr(data, "load", broken)
    outcome = started(tmp_path)
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


def test_every_configuration_for_real_data_is_listed() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_trial_0_on_real_data_is_the_published_setting(name: str, data_dir: Path) -> None:
    spec = load(CONFIGS / f"{name}.yaml", [f"data.dir={data_dir / REAL[name][0]}"]).spec
    defaults = WORKLOADS.get(spec.workload).defaults
    chosen = {**spec.fixed, **(spec.space.default() or {})}
    assert {key for key in chosen if defaults.get(key, chosen[key]) != chosen[key]} == REAL[name][1]
