"""Which GPUs `CUDA_VISIBLE_DEVICES` names, for every reader of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.core import resources
from automl.core.resources import (
    Resources,
    default_gpus,
    given_resources,
    local_gpus,
    slot_resources,
)
from automl.errors import UsageError
from search_spaces.hardware import detect
from workers.runtime.devices import (
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
    assert default_gpus(num_gpus, workers) == gpus
    assert not gpus or slots_on(num_gpus, gpus) >= (workers or num_gpus)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(resources, "may_have_gpus", lambda: True)
    monkeypatch.setattr(resources, "detect", lambda: replace(detect(), gpus=("a",) * num_gpus))
    assert local_gpus() == num_gpus
    given, said = slot_resources({"cpus": 2}, num_gpus, workers)
    assert given == Resources(2, gpus)
    assert said.startswith("each worker has") is bool(gpus)
    assert slot_resources({"gpus": 0.0}, num_gpus, workers) == (Resources(), "")
