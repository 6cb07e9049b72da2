"""What machines with GPUs offer, and which worker sees which of them."""

from dataclasses import dataclass, replace
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
    """GPUs as torch shows them, the variable of the process, and what it leads to."""

    name: str
    count: int
    gigabytes: int
    cores: int
    seen: tuple[str, ...]
    strategies: frozenset[str]
    is_set: bool = False
    peers: bool = True
    hip: str | None = None

    @property
    def variable(self) -> str:
        return AMD_VARIABLE if self.hip else VARIABLE


H100 = Machine(
    *("NVIDIA H100 80GB HBM3", 8, 80, 208, tuple(map(str, range(8)))),
    frozenset({"fsdp", "data_tensor", "data_pipeline"}),
)
MACHINES = [
    H100,
    Machine("RTX 3090", 2, 24, 32, ("0", "1"), frozenset({"ddp", "fsdp", "tensor"}), peers=False),
    Machine("H100 1g.10gb", 1, 10, 28, tuple(f"MIG-{i}a" for i in range(7)),
            frozenset({"single"}), is_set=True),
    replace(H100, name="named", count=2, cores=32, seen=("GPU-b7", "GPU-a1"),
            strategies=frozenset({"ddp"}), is_set=True),
    Machine("AMD Instinct MI300X", 4, 192, 64, ("2", "3", "0", "1"),
            frozenset({"ddp", "fsdp"}), is_set=True, hip="6.4"),
]  # fmt: skip


def become(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> hardware.Hardware:
    """Make this machine another one."""
    for name in (VARIABLE, AMD_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    if machine.is_set:
        monkeypatch.setenv(machine.variable, ",".join(machine.seen))
    memory = machine.gigabytes << 30
    gpu = SimpleNamespace(name=machine.name, total_memory=memory, major=9, minor=0)
    for place, attribute, value in (
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "device_count", lambda: machine.count),
        (torch.cuda, "get_device_properties", lambda index: gpu),
        (torch.cuda, "can_device_access_peer", lambda a, b: machine.peers),
        (torch.version, "hip", machine.hip),
        (torch.distributed, "is_nccl_available", lambda: True),
        (hardware, "count_cpus", lambda: machine.cores),
        (resources, "count_cpus", lambda: machine.cores),
        (resources, "detect", detect.__wrapped__),
        (doctor, "detect", detect.__wrapped__),
        (resources, "may_have_gpus", lambda: True),
        (doctor, "shared_gpus", lambda: ()),
    ):
        monkeypatch.setattr(place, attribute, value)
    return detect.__wrapped__()


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_what_a_machine_with_gpus_offers(machine, tmp_path, monkeypatch):
    found, slots = become(machine, monkeypatch), len(machine.seen)
    precisions = {"fp32", "bf16", "fp16", *(() if machine.hip else ("tf32",))}
    assert len(found.gpus) == slots
    assert set(found.precisions) == precisions
    given, _ = slot_resources({}, local_gpus(), None)
    assert given.gpus == 1.0
    assert given.cpus * slots <= machine.cores
    space = WORKLOADS.get("translation").space(found.in_slots(int(given.cpus), given.gpus, slots))
    assert set(space.parameters["precision"].choices) == precisions
    offered = set(getattr(space.parameters.get("parallelism"), "choices", {"single"}))
    assert machine.strategies <= offered
    abilities = doctor.examine(str(tmp_path))["abilities"]
    lacks = {(one["kind"], one["name"]): one["lacks"] for one in abilities}
    assert {name for name in hardware.PRECISIONS if not lacks["precision", name]} == precisions


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_each_worker_sees_a_gpu_of_its_own(machine, monkeypatch):
    become(machine, monkeypatch)
    seen, variable = list(machine.seen), machine.variable
    assert [environment_of(slot, 1.0)[variable] for slot in range(len(seen))] == seen
    pairs = [environment_of(slot, 2.0)[variable] for slot in range(len(seen) // 2)]
    assert pairs == [",".join(seen[i : i + 2]) for i in range(0, len(seen) - 1, 2)]
    halves = [environment_of(slot, 0.5)[variable] for slot in range(2 * len(seen))]
    assert halves == [name for name in seen for _ in range(2)]
    with pytest.raises(UsageError, match="ask for fewer workers"):
        environment_of(len(seen), 1.0)
