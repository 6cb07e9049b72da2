"""Which GPUs `CUDA_VISIBLE_DEVICES` names, for every reader of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from automl.core import resources
from automl.core.resources import (
    Resources,
    given_resources,
    local_gpus,
    slot_resources,
)
from automl.errors import UsageError
from search_spaces.hardware import detect
from workers.runtime.devices import (
    AMD_VARIABLE,
    VARIABLE,
    environment_of,
    gpus_of_slots,
    slots_on,
    visible_gpus,
)


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
    monkeypatch.setattr(resources, "may_have_gpus", lambda: True)
    monkeypatch.setattr(resources, "count_cpus", lambda: 8)
    assert Resources(gpus=0.5).local_slots() == max(1, 2 * len(names))


@pytest.mark.parametrize(
    ("gpus", "slots"), [(1.0, 4), (2.0, 2), (3.0, 1), (0.6, 4), (0.5, 8), (0.4, 8), (1 / 3, 12)]
)
def test_every_slot_lies_on_gpus_that_have_room_for_it(gpus: float, slots: int) -> None:
    names = ["a", "b", "c", "d"]
    assert slots_on(4, gpus) == slots
    assert gpus_of_slots(slots, gpus) <= 4
    used = dict.fromkeys(names, 0.0)
    for slot in range(slots):
        seen = environment_of(slot, gpus, names)[VARIABLE].split(",")
        assert len(seen) == max(1, int(gpus))
        for name in seen:
            used[name] += min(gpus, 1.0)
    assert max(used.values()) <= 1 + 1e-9
    with pytest.raises(UsageError, match="ask for fewer workers"):
        environment_of(slots, gpus, names)


def test_gpus_of_a_slot_are_whole_or_a_share_of_one() -> None:
    with pytest.raises(UsageError, match="a whole number, or a share of one GPU below 1, got 1"):
        given_resources("resources", {"gpus": 1.5})
    assert given_resources("resources", {"gpus": 2}) == {"gpus": 2.0}


@pytest.mark.parametrize(
    ("num_gpus", "workers", "gpus"),
    [(0, None, 0.0), (0, 3, 0.0), (4, None, 1.0), (4, 4, 1.0), (4, 5, 0.5), (2, 5, 1 / 3)],
)
def test_a_slot_has_a_gpu_by_default(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, workers: int | None, gpus: float
) -> None:
    assert slot_resources({}, num_gpus, workers)[0].gpus == gpus
    assert not gpus or slots_on(num_gpus, gpus) >= (workers or num_gpus)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(resources, "may_have_gpus", lambda: True)
    monkeypatch.setattr(resources, "detect", lambda: replace(detect(), gpus=("a",) * num_gpus))
    assert local_gpus() == num_gpus
    given, said = slot_resources({"cpus": 2}, num_gpus, workers)
    assert given == Resources(2, gpus)
    assert said.startswith("each worker has") is bool(gpus)
    assert slot_resources({"gpus": 0.0}, num_gpus, workers) == (Resources(), "")


def test_each_worker_has_a_slice_of_a_gpu_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA shows a process the first slice only."""
    slices = [f"MIG-{index}" for index in range(7)]
    monkeypatch.setenv(VARIABLE, ",".join(slices))
    properties = SimpleNamespace(name="H100 1g.10gb", total_memory=10**10, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(resources, "may_have_gpus", lambda: True)
    monkeypatch.setattr(resources, "detect", detect.__wrapped__)
    monkeypatch.setattr(resources, "count_cpus", lambda: 16)
    assert local_gpus() == 7
    found, _ = slot_resources({}, local_gpus(), 7)
    assert found == Resources(2, 1.0)
    assert [environment_of(slot, found.gpus)[VARIABLE] for slot in range(7)] == slices


def test_on_amd_the_variable_that_has_priority_names_the_gpu_of_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setenv(AMD_VARIABLE, "2,5")
    assert [environment_of(slot, 1.0)[AMD_VARIABLE] for slot in range(2)] == ["2", "5"]


@pytest.mark.parametrize(
    ("cores", "num_gpus", "workers", "given", "cpus"),
    [
        (16, 1, None, {}, 16),
        (208, 8, None, {}, 16),
        (64, 8, 2, {}, 8),
        (16, 1, 4, {}, 4),
        (16, 2, None, {"gpus": 2.0}, 16),
        (16, 2, None, {"cpus": 3}, 3),
        (16, 2, None, {"gpus": 0.0}, 1),
        (16, 0, None, {}, 1),
        (4, 8, None, {}, 1),
    ],
)
def test_a_slot_with_a_gpu_has_its_part_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    num_gpus: int,
    workers: int | None,
    given: dict[str, float],
    cpus: int,
) -> None:
    monkeypatch.setattr(resources, "count_cpus", lambda: cores)
    assert slot_resources(given, num_gpus, workers)[0].cpus == cpus
