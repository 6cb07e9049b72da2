"""How many workers a sweep has: a number, or a range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from objectives import make_spec

from automl.core import SweepSpec, WorkerRange, read_workers
from automl.errors import UsageError


def test_a_number_is_a_range_of_one_and_a_spec_keeps_a_range() -> None:
    assert read_workers(3) == WorkerRange(3, 3)
    assert not WorkerRange(3, 3).elastic
    assert read_workers({"min": np.int64(2), "max": 8}) == WorkerRange(2, 8)
    spec = make_spec(workers={"min": 2, "max": 8})
    assert SweepSpec.from_dict(spec.to_dict()) == spec
    assert spec.workers == WorkerRange(2, 8)
    assert str(spec.workers) == "2 to 8"


WRONG = [
    (0, "at least 1, got 0"),
    (True, "whole number"),
    ({"min": 2}, "a mapping of min and max"),
    ({"min": 4, "max": 2}, "must not exceed max, got 4 and 2"),
    ({"min": 0, "max": 2}, "min of workers must be a whole number of at least 1"),
    ({"min": 1, "max": 10**6}, "at most 10000"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_a_wrong_range_is_refused(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_workers(given)
