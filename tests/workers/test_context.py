"""What `trial.report` and a result accept: numbers, in bounded number and length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from search_spaces.errors import StoreError, TrialFailure
from workers.context import Context
from workers.failures import MAX_MESSAGE, failure_of
from workers.functions.numbers import MAX_METRICS, numbers_of, returned
from workers.protocol import Assignment


class Hostile:
    def __float__(self) -> float:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1.5", "metric 'loss' must be a number, got str of 3: '1.5'"),
        (b"1.5", "metric 'loss' must be a number, got bytes of 3: b'1.5'"),
        ([1.0] * 1_000_000, "metric 'loss' must be a number, got list of 1,000,000: [1.0, 1.0, "),
        (None, "metric 'loss' must be a number, got NoneType: None"),
        (torch.ones(3), "metric 'loss' must be a number, got Tensor of 3: tensor("),
        (Hostile(), "metric 'loss' must be a number, got Hostile"),
    ],
)
def test_a_value_that_is_no_number_is_one_short_failure(value: Any, message: str) -> None:
    with pytest.raises(TrialFailure) as caught:
        numbers_of({"loss": value})
    assert caught.value.kind == "missing_metric"
    assert caught.value.message.startswith(message)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("given", "named", "got"),
    [
        ((0.5, 3.5), {}, "float: 0.5, float: 3.5"),
        ((0.5,), {}, "float: 0.5"),
        ((), {"step": 0.5, "loss": 3}, "float: 0.5"),
        ((), {"loss": 3}, ""),
        ((Hostile(),), {"loss": 3}, "Hostile"),
        ((math.nan,), {}, "float: nan"),
        ((2**63,), {}, "int: 9223372036854775808"),
        ((3, {"loss": 0.5}), {}, "int: 3, dict of 1: {'loss': 0.5}"),
    ],
)
def test_a_wrong_call_of_report_is_explained(
    given: tuple[Any, ...], named: dict[str, Any], got: str
) -> None:
    context = Context(Assignment("s", 0, 1, {}, None, "", goals=("acc",)))
    with pytest.raises(TypeError) as caught:
        context.report(*given, **named)
    assert f"trial.report(step, acc=value); got trial.report({got})" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((0.5, 3), {}),
        ((0.5,), {"step": 3}),
        *(((step,), {"acc": 0.5}) for step in (3, 3.0, np.int64(3), np.float32(3))),
        ((), {"step": torch.tensor(3), "acc": 0.5}),
    ],
)
def test_a_report_has_a_whole_step_and_a_value_that_may_lack_its_name(
    given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    sent: list[Any] = []
    context = Context(Assignment("s", 0, 1, {}, None, "", goals=("acc",)), send=sent.append)
    assert context.report(*given, **named)
    assert (sent[0].step, sent[0].metrics) == (3, {"acc": 0.5})
    assert type(sent[0].step) is int


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ({str(n): 0.0 for n in range(MAX_METRICS + 1)}, "at most 10,000 metrics are kept, got 10,"),
        ({"x" * 1_000_000: 0.0}, "at most 200 characters, got 1,000,000"),
    ],
    ids=["number", "name"],
)
def test_names_and_numbers_of_metrics_are_bounded(metrics: dict[str, float], problem: str) -> None:
    with pytest.raises(TrialFailure, match=problem):
        numbers_of(metrics)


@pytest.mark.parametrize(
    "value", [np.array([2.0]), np.float32(2), np.array(2), torch.tensor([[2.0]]), torch.tensor(2)]
)
def test_an_array_of_one_element_is_a_number(value: Any) -> None:
    assert numbers_of({"loss": value}) == returned(value, ["loss"]) == {"loss": 2.0}


@pytest.mark.parametrize("name", ["seconds", "peak_memory_bytes"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -5.0, 1e19, 1e300])
def test_numbers_that_the_controller_computes_with_are_bounded(name: str, value: float) -> None:
    with pytest.raises(TrialFailure, match=f"metric '{name}' must be a number from 0 to"):
        numbers_of({name: value})
    assert repr(numbers_of({"loss": value})["loss"]) == repr(value)


def test_several_goals_need_a_dict() -> None:
    with pytest.raises(TrialFailure, match=r"Return a dict with .* return {'a': a, 'x/b': value}"):
        returned(1.0, ["a", "x/b"])


def test_a_message_is_bounded() -> None:
    kind, message = failure_of(TrialFailure("non_finite", "x" * 30_000_000))
    assert kind == "non_finite"
    assert len(message) < MAX_MESSAGE + 100
    assert message.endswith("... (30,000,000 characters in all)")


def test_the_folder_for_checkpoints_outlives_attempts_and_is_no_link(tmp_path: Path) -> None:
    def context(attempt: int, trial: str = "0") -> Context:
        resume = attempt > 1
        return Context(Assignment("s", 0, attempt, {}, None, f"{tmp_path}/{trial}", resume=resume))

    assert context(1).checkpoint_dir.is_dir()
    second = context(2)
    assert not second.resumed, "the first attempt has left no files"
    (second.checkpoint_dir / "state").write_text("3")
    assert not second.resumed, "its own files are of no earlier attempt"
    assert (context(3).checkpoint_dir / "state").read_text() == "3"
    assert context(3).resumed
    assert not context(1).resumed, "a new trial in the folder of a deleted one"
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="is a symbolic link"):
        _ = context(1, "1").checkpoint_dir
