"""The hardware of this machine: cores, memory, GPUs, precisions, communication backends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any, Final

PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")

CAPABILITIES: Final = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3)}  # of CUDA, at least
_NEEDS: Final = {
    "tf32": "a CUDA GPU of capability 8.0 or later",
    "bf16": "a CUDA GPU that computes in bfloat16, or a CPU that torch can autocast to bfloat16",
    "fp16": "a CUDA GPU of capability 5.3 or later, or a CPU that torch can autocast to float16",
    "nccl": "torch built with NCCL and a CUDA GPU",
    "mpi": "torch built with MPI",
    "gloo": "torch built with distributed support",
}


@dataclass(frozen=True)
class Gpu:
    """One CUDA device.

    Args:
        memory_bytes: its memory.
        capability: the CUDA compute capability as (major, minor).
        bf16: whether it computes in bfloat16 without emulation.
    """

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    bf16: bool


@dataclass(frozen=True)
class Hardware:
    """The resources of a machine, as plain data.

    Args:
        num_cpus: cores that this process may use.
        memory_bytes: main memory that this process may use.
        gpus: the visible CUDA devices.
        precisions: members of `PRECISIONS` that every GPU supports, or the CPU if there is no GPU.
        backends: those of gloo, nccl and mpi that this torch was built with and that have a device.
        host: name of the machine.
        slow: maps a precision that runs without hardware support, slower than fp32, to the reason.
        rpc: whether this torch was built with RPC.
        slots: worker slots for the ranks of a trial; 0 means one per GPU, else one per core.
    """

    num_cpus: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    precisions: tuple[str, ...] = ("fp32",)
    backends: tuple[str, ...] = ("gloo",)
    host: str = ""
    slow: Mapping[str, str] = field(default_factory=dict)
    rpc: bool = True
    slots: int = 0

    @property
    def num_slots(self) -> int:
        """`slots` if it is set, else the number of GPUs, else of cores."""
        return self.slots or len(self.gpus) or self.num_cpus

    def in_slots(self, cpus: int, gpus: float, workers: int | None) -> Hardware:
        """This machine as a trial in one slot sees it; without GPUs if a slot has none.

        Args:
            cpus: cores per slot.
            gpus: GPUs per slot; may be a fraction.
            workers: the number of slots; None for as many as fit.
        """
        room = self.num_cpus // max(1, cpus)
        if not gpus:
            found = replace(self, slots=max(1, workers or room))
            backends = tuple(backend for backend in self.backends if backend != "nccl")
            return replace(found, gpus=(), backends=backends, **_of_cpu()) if self.gpus else found
        # NCCL supports one rank per GPU, and slices of a GPU (MIG) cannot talk to each other.
        if gpus < 1 or any(" MIG " in f"{gpu.name} " for gpu in self.gpus):
            return replace(self, slots=1)
        return replace(self, slots=max(1, workers or min(room, int(len(self.gpus) / gpus))))

    def lacks(self, name: str) -> str:
        """Why a precision or a communication backend cannot be used here; "" if it can."""
        if name in (*self.precisions, *self.backends):
            return ""
        gpus = ", ".join(f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in self.gpus)
        here = f"here: {gpus}" if gpus else "this machine has no CUDA GPU"
        if name not in PRECISIONS:
            here = f"here: {', '.join(self.backends) or 'no backend'}"
        return f"needs {_NEEDS.get(name, 'what is not known')}; {here}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hardware:
        """The inverse of `dataclasses.asdict`."""
        gpus = tuple(Gpu(**{**gpu, "capability": tuple(gpu["capability"])}) for gpu in data["gpus"])
        lists = {key: tuple(data[key]) for key in ("precisions", "backends")}
        return cls(**{**data, **lists, "gpus": gpus})


@cache
def detect() -> Hardware:
    """The hardware that this process can use. The first call imports torch, which takes seconds."""
    import torch

    gpus = _gpus() if torch.cuda.is_available() else ()
    backends, rpc = _distributed(bool(gpus))
    of_gpus = {"precisions": _gpu_precisions(gpus, torch.version.hip is None)} if gpus else None
    able: dict[str, Any] = of_gpus or _of_cpu()
    return Hardware(
        count_cpus(), memory_limit(), gpus, backends=backends, host=gethostname(), rpc=rpc, **able
    )


def may_have_gpus() -> bool:
    """Whether there is a driver of GPUs; only torch knows whether it can use one (`detect`)."""
    files = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows
    return any(Path(name).exists() for name in files) or shutil.which("nvidia-smi") is not None


def count_cpus() -> int:
    """Cores that this process may use: its affinity, limited by its control groups' quotas."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for text in _limits("cpu.max"):
        quota, _, period = text.partition(" ")
        cores = min(cores or 1, int(quota) // int(period)) if quota.isdigit() else cores
    return max(1, cores or 1)


def memory_limit() -> int:
    """Bytes of main memory that this process may use, as limited by its control groups."""
    import psutil  # not before a sweep begins its first trial

    limits = (int(text) for text in _limits("memory.max") if text.isdigit())
    return min([int(psutil.virtual_memory().total), *limits])


def _limits(name: str) -> Iterator[str]:
    """A limit of this process's control group (version 2) and of each ancestor that has one."""
    root, own = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
    path = own.read_text().partition("::/")[2].strip() if own.exists() else ""
    for folder in (root / path / name).parents:
        with suppress(OSError):
            yield (folder / name).read_text().strip()


def _gpus() -> tuple[Gpu, ...]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = (int(properties.major), int(properties.minor))
        native = capability >= CAPABILITIES["bf16"] or torch.version.hip is not None
        found.append(Gpu(str(properties.name), int(properties.total_memory), capability, native))
    slices = os.environ.get("CUDA_VISIBLE_DEVICES", "").count("MIG-")
    # CUDA shows a process one slice of a GPU, however many are named; each worker gets its own.
    return tuple(found * slices if slices > len(found) == 1 else found)


def _gpu_precisions(gpus: tuple[Gpu, ...], cuda: bool) -> tuple[str, ...]:
    """Precisions that every GPU supports, because a trial may run on any of them."""
    weakest = min(gpu.capability for gpu in gpus)
    able = {
        "fp32": True,
        "tf32": cuda and weakest >= CAPABILITIES["tf32"],
        "bf16": all(gpu.bf16 for gpu in gpus),
        "fp16": weakest >= CAPABILITIES["fp16"],
    }
    return tuple(name for name in PRECISIONS if able[name])


def _of_cpu() -> dict[str, Any]:
    """The precisions of the CPU, and the reasons why some are slow.

    Every CPU can autocast to bfloat16 and float16; special instructions decide whether it is fast.
    """
    import torch

    flags: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    fast = {
        ("bf16", "bfloat16"): ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
        ("fp16", "float16"): ("avx512_fp16", "amx_fp16", "fp16_arith"),
    }
    slow = {
        name: f"this CPU has no {word} instructions and emulates them"
        for (name, word), instructions in fast.items()
        if not any(map(flags.get, instructions))
    }
    return {"precisions": ("fp32", "bf16", "fp16"), "slow": slow}


def _distributed(has_gpu: bool) -> tuple[tuple[str, ...], bool]:
    """The usable communication backends, and whether torch was built with RPC."""
    import torch.distributed as dist

    if not dist.is_available():
        return (), False
    built = {
        "gloo": dist.is_gloo_available(),
        "nccl": has_gpu and dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
    }
    return tuple(name for name, is_built in built.items() if is_built), dist.rpc.is_available()
