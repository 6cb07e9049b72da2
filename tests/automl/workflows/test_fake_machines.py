"""What machines with and without GPUs offer, and which worker sees which of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from automl.core import resources
from automl.core.resources import local_gpus, slot_resources
from automl.errors import UsageError
from automl.workflows import doctor
from search_spaces import hardware
from search_spaces.hardware import detect
from workers.runtime.devices import AMD_VARIABLE, VARIABLE, environment_of
from workers.workloads import WORKLOADS


@dataclass(frozen=True)
class Machine:
    """GPUs as torch shows them, and the variables of the process."""

    name: str
    count: int
    capability: tuple[int, int]
    gigabytes: int
    cores: int
    variables: dict[str, str]
    hip: str | None = None
    peers: bool = True
    mps: bool = False
    xpu: bool = False


H100 = Machine("NVIDIA H100 80GB HBM3", 8, (9, 0), 80, 208, {})
RTX3090 = Machine("NVIDIA GeForce RTX 3090", 2, (8, 6), 24, 32, {}, peers=False)
SLICES = [f"MIG-{index}a" for index in range(7)]
MIG = Machine("H100 1g.10gb", 1, (9, 0), 10, 28, {VARIABLE: ",".join(SLICES)})
UUIDS = Machine(H100.name, 2, (9, 0), 80, 32, {VARIABLE: "GPU-b7,GPU-a1"})
AMD = Machine("AMD Instinct MI300X", 4, (9, 4), 192, 64, {AMD_VARIABLE: "2,3,0,1"}, hip="6.4")
MAC = Machine("", 0, (0, 0), 0, 10, {}, mps=True)
INTEL = Machine("", 0, (0, 0), 0, 16, {}, xpu=True)


@pytest.fixture
def become(monkeypatch):
    """Makes this machine another one."""

    def change(machine: Machine) -> hardware.Hardware:
        for name in (VARIABLE, AMD_VARIABLE):
            monkeypatch.delenv(name, raising=False)
        for name, value in machine.variables.items():
            monkeypatch.setenv(name, value)
        major, minor = machine.capability
        gpu = SimpleNamespace(
            name=machine.name, total_memory=machine.gigabytes << 30, major=major, minor=minor
        )
        monkeypatch.setattr(torch.cuda, "is_available", lambda: machine.count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: machine.count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: machine.peers)
        monkeypatch.setattr(torch.version, "hip", machine.hip)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: machine.mps)
        monkeypatch.setattr(torch.xpu, "is_available", lambda: machine.xpu)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: machine.count > 0)
        for place in (hardware, resources):
            monkeypatch.setattr(place, "count_cpus", lambda: machine.cores)
        for place in (resources, doctor):
            monkeypatch.setattr(place, "detect", detect.__wrapped__)
        monkeypatch.setattr(resources, "may_have_gpus", lambda: machine.count > 0)
        monkeypatch.setattr(doctor, "shared_gpus", lambda: ())
        return detect.__wrapped__()

    return change


@pytest.mark.parametrize(
    ("machine", "slots", "precisions", "strategies"),
    [
        (H100, 8, {"fp32", "tf32", "bf16", "fp16"}, {"fsdp", "data_tensor", "data_pipeline"}),
        (RTX3090, 2, {"fp32", "tf32", "bf16", "fp16"}, {"ddp", "fsdp", "tensor"}),
        (MIG, 7, {"fp32", "tf32", "bf16", "fp16"}, {"single"}),
        (UUIDS, 2, {"fp32", "tf32", "bf16", "fp16"}, {"ddp"}),
        (AMD, 4, {"fp32", "bf16", "fp16"}, {"ddp", "fsdp"}),
    ],
    ids=lambda value: value.name if isinstance(value, Machine) else "",
)
def test_what_a_machine_with_gpus_offers(become, tmp_path, machine, slots, precisions, strategies):
    found = become(machine)
    assert len(found.gpus) == slots
    assert set(found.precisions) == precisions
    given, _ = slot_resources({}, local_gpus(), None)
    assert given.gpus == 1.0
    assert given.cpus * slots <= machine.cores
    space = WORKLOADS.get("translation").space(found.in_slots(int(given.cpus), given.gpus, slots))
    assert set(space.parameters["precision"].choices) == precisions
    offered = set(getattr(space.parameters.get("parallelism"), "choices", {"single"}))
    assert strategies <= offered
    abilities = doctor.examine(str(tmp_path))["abilities"]
    lacks = {(one["kind"], one["name"]): one["lacks"] for one in abilities}
    assert {name for name in hardware.PRECISIONS if not lacks["precision", name]} == precisions


@pytest.mark.parametrize(
    ("machine", "variable", "seen"),
    [
        (H100, VARIABLE, [str(index) for index in range(8)]),
        (RTX3090, VARIABLE, ["0", "1"]),
        (MIG, VARIABLE, SLICES),
        (UUIDS, VARIABLE, ["GPU-b7", "GPU-a1"]),
        (AMD, AMD_VARIABLE, ["2", "3", "0", "1"]),
    ],
    ids=lambda value: value.name if isinstance(value, Machine) else "",
)
def test_each_worker_sees_a_gpu_of_its_own(become, machine, variable, seen):
    become(machine)
    assert [environment_of(slot, 1.0)[variable] for slot in range(len(seen))] == seen
    pairs = [environment_of(slot, 2.0)[variable] for slot in range(len(seen) // 2)]
    assert pairs == [",".join(seen[i : i + 2]) for i in range(0, len(seen) - 1, 2)]
    halves = [environment_of(slot, 0.5)[variable] for slot in range(2 * len(seen))]
    assert halves == [name for name in seen for _ in range(2)]
    with pytest.raises(UsageError, match="ask for fewer workers"):
        environment_of(len(seen), 1.0)
