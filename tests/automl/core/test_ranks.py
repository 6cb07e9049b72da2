"""`ranks` is a number or a parameter of whole numbers, and each rank takes a slot."""

from __future__ import annotations

from typing import Any

import pytest
from objectives import make_spec

from automl.control.beginning import check_spec
from automl.core.spec import SweepSpec, max_ranks, ranks_of
from automl.errors import UsageError
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 0.1, 1.0),
    Int("num_gpus", 1, 4),
    Choice("sizes", [1, 8]),
    Choice("words", ["one", "two"]),
    Int("from_zero", 0, 4),
    Int("conditional", 2, 3, when={"words": "two"}),
)


def spec_with(ranks: Any, **options: Any) -> SweepSpec:
    return make_spec(space=SPACE, ranks=ranks, **options)


@pytest.mark.parametrize(("ranks", "most"), [(1, 1), (3, 3), ("num_gpus", 4), ("sizes", 8)])
def test_the_max_ranks(ranks: Any, most: int) -> None:
    spec = spec_with(ranks)
    assert (max_ranks(spec), SweepSpec.from_dict(spec.to_dict()).ranks) == (most, ranks)


def test_the_ranks_of_a_configuration() -> None:
    assert (ranks_of(3, {}), ranks_of("num_gpus", {"num_gpus": 2})) == (3, 2)
    assert ranks_of("conditional", {"words": "one"}) == 1


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (0, "ranks must be a whole number of at least 1, got 0"),
        (1.5, "ranks must be a whole number of at least 1, got 1.5"),
        ("num_gpu", "ranks must be a number or a parameter, got 'num_gpu'; did you mean"),
        ("lr", "parameter 'lr' is the number of ranks: its values must be whole numbers of at"),
        ("words", "at least 1, got 'one'"),
        ("from_zero", "at least 1, got 0"),
    ],
)
def test_what_is_no_number_of_ranks(ranks: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        max_ranks(spec_with(ranks))


def test_before_a_sweep_one_error_says_that_there_is_no_room() -> None:
    def check(ranks: Any, dispatcher: str, **options: Any) -> None:
        check_spec(spec_with(ranks, **options), dispatcher, lambda trial: None)

    for ranks, dispatcher, words in (
        (3, "local", "ranks is 3, and there are 2 slots"),
        ("num_gpus", "ray", r"'num_gpus' can be 4, .* or for workers=4"),
        (2, "inline", "'inline' runs one rank of your objective"),
    ):
        with pytest.raises(UsageError, match=words):
            check(ranks, dispatcher, workers=2)
    check(3, "local", workers=3)
    check(1, "inline")
    with pytest.raises(UsageError, match="put `ranks` in its space or under `fixed`"):
        check_spec(spec_with(2, workload="image_classification"), "local", None)
