"""Which GPUs `CUDA_VISIBLE_DEVICES` names, for every reader of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.core import resources
from automl.core.resources import Resources
from search_spaces.hardware import detect
from workers.runtime.devices import VARIABLE, visible_gpus


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2, 0", ["2", "0"]),
        ("1,-1,0", ["1"]),
        ("0,,1", ["0"]),
        ("0,0", ["0"]),
        ("GPU-a,MIG-b,1", ["GPU-a", "MIG-b", "1"]),
    ],
)
def test_a_name_of_no_gpu_hides_those_after_it(
    monkeypatch: pytest.MonkeyPatch, given: str, names: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    assert visible_gpus() == names
    four = replace(detect(), gpus=("a", "b", "c", "d"))
    monkeypatch.setattr(resources, "detect", lambda: four)
    monkeypatch.setattr(resources, "count_cpus", lambda: 8)
    assert Resources(gpus=0.5).local_slots() == max(1, 2 * len(names))
