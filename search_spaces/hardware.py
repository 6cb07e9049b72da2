"""The hardware of this machine: cores, memory, GPUs, precisions, communication backends."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")
BACKENDS: Final = ("gloo", "nccl", "mpi")

TF32_CAPABILITY: Final = (8, 0)
BF16_CAPABILITY: Final = (8, 0)
FP16_CAPABILITY: Final = (5, 3)


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
        backends: members of `BACKENDS` that this torch was built with and that have a device.
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
    def device(self) -> str:
        """The device that a trial trains on: "cuda" if there is a GPU, else "cpu"."""
        return "cuda" if self.gpus else "cpu"

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
            found = self._without_gpus() if self.gpus else self
            return replace(found, slots=max(1, workers or room))
        # NCCL supports one rank per GPU, and slices of a GPU (MIG) cannot talk to each other.
        if gpus < 1 or any(" MIG " in f"{gpu.name} " for gpu in self.gpus):
            return replace(self, slots=1)
        return replace(self, slots=max(1, workers or min(room, int(len(self.gpus) / gpus))))

    def _without_gpus(self) -> Hardware:
        precisions, slow = _cpu_precisions()
        backends = tuple(backend for backend in self.backends if backend != "nccl")
        return replace(self, gpus=(), precisions=precisions, slow=slow, backends=backends)

    def lacks_precision(self, precision: str) -> str | None:
        """Why a precision cannot be used here; None if it can."""
        if precision in self.precisions:
            return None
        needs = {
            "tf32": "needs a CUDA GPU of capability "
            f"{TF32_CAPABILITY[0]}.{TF32_CAPABILITY[1]} or later",
            "bf16": "needs a CUDA GPU that computes in bfloat16, "
            "or a CPU that torch can autocast to bfloat16",
            "fp16": "needs a CUDA GPU of capability "
            f"{FP16_CAPABILITY[0]}.{FP16_CAPABILITY[1]} or later, "
            "or a CPU that torch can autocast to float16",
        }
        gpus = ", ".join(f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in self.gpus)
        here = f"here: {gpus}" if gpus else "this machine has no CUDA GPU"
        return f"{needs.get(precision, 'is not known')}; {here}"

    def lacks_backend(self, backend: str) -> str | None:
        """Why a communication backend cannot be used here; None if it can."""
        if backend in self.backends:
            return None
        needs = {
            "nccl": "needs torch built with NCCL and a CUDA GPU",
            "mpi": "needs torch built with MPI",
            "gloo": "needs torch built with distributed support",
        }
        here = ", ".join(self.backends) or "no backend"
        return f"{needs.get(backend, 'is not known')}; here: {here}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; the inverse is `from_dict`."""
        data = asdict(self)
        data["gpus"] = [{**gpu, "capability": list(gpu["capability"])} for gpu in data["gpus"]]
        return {
            **data,
            "precisions": list(self.precisions),
            "backends": list(self.backends),
            "slow": dict(self.slow),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hardware:
        """The inverse of `to_dict`."""
        gpus = tuple(Gpu(**{**gpu, "capability": tuple(gpu["capability"])}) for gpu in data["gpus"])
        lists = {key: tuple(data[key]) for key in ("precisions", "backends")}
        return cls(**{**data, **lists, "gpus": gpus})


@cache
def detect() -> Hardware:
    """The hardware that this process can use. The first call imports torch, which takes seconds."""
    import torch

    gpus = _gpus() if torch.cuda.is_available() else ()
    precisions, slow = (
        (_gpu_precisions(gpus, torch.version.hip is None), {}) if gpus else _cpu_precisions()
    )
    backends, rpc = _distributed(bool(gpus))
    return Hardware(
        num_cpus=count_cpus(),
        memory_bytes=memory_limit(),
        gpus=gpus,
        precisions=precisions,
        backends=backends,
        host=socket.gethostname(),
        slow=slow,
        rpc=rpc,
    )


def may_have_gpus() -> bool:
    """Whether there is a driver of GPUs; only torch knows whether it can use one (`detect`)."""
    files = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows
    return any(Path(name).exists() for name in files) or shutil.which("nvidia-smi") is not None


def count_cpus() -> int:
    """Cores that this process may use: its affinity, limited by its control groups' quotas."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    for folder in _control_groups("cpu"):
        old = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
        for quota in (_read(folder / "cpu.max").split(), old.split()):
            if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
                cores = min(cores, int(quota[0]) // int(quota[1]))
    return max(1, cores)


def memory_limit() -> int:
    """Bytes of main memory that this process may use, as limited by its control groups."""
    import psutil  # not before a sweep begins its first trial

    limits = [int(psutil.virtual_memory().total)]
    for folder in _control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name).strip()
            limits += [int(text)] if text.isdigit() and int(text) > 0 else []
    return min(limits)


def _control_groups(controller: str) -> list[Path]:
    """Folders of this process's control groups (version 1 or 2) and of their ancestors."""
    root = Path("/sys/fs/cgroup")
    found = [root]
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        top = root / controller if names else root
        group = top / path.lstrip("/")
        found += [group, *(parent for parent in group.parents if parent.is_relative_to(top))]
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _gpus() -> tuple[Gpu, ...]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = (int(properties.major), int(properties.minor))
        native = capability >= BF16_CAPABILITY or torch.version.hip is not None
        found.append(Gpu(str(properties.name), int(properties.total_memory), capability, native))
    slices = os.environ.get("CUDA_VISIBLE_DEVICES", "").count("MIG-")
    # CUDA shows a process one slice of a GPU, however many are named; each worker gets its own.
    return tuple(found * slices if slices > len(found) == 1 else found)


def _gpu_precisions(gpus: tuple[Gpu, ...], cuda: bool) -> tuple[str, ...]:
    """Precisions that every GPU supports, because a trial may run on any of them."""
    weakest = min(gpu.capability for gpu in gpus)
    able = {
        "fp32": True,
        "tf32": cuda and weakest >= TF32_CAPABILITY,
        "bf16": all(gpu.bf16 for gpu in gpus),
        "fp16": weakest >= FP16_CAPABILITY,
    }
    return tuple(name for name in PRECISIONS if able[name])


def _cpu_precisions() -> tuple[tuple[str, ...], dict[str, str]]:
    """Precisions of the CPU, and the reasons why some are slow.

    Every CPU can autocast to bfloat16 and float16; special instructions decide whether it is fast.
    """
    import torch

    flags: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    native = {
        "bf16": any(flags.get(f) for f in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")),
        "fp16": any(flags.get(f) for f in ("avx512_fp16", "amx_fp16", "fp16_arith")),
    }
    words = {"bf16": "bfloat16", "fp16": "float16"}
    slow = {
        p: f"this CPU has no {words[p]} instructions and emulates them"
        for p, fast in native.items()
        if not fast
    }
    return ("fp32", *(p for p in ("bf16", "fp16") if _autocasts(p))), slow


def _autocasts(precision: str) -> bool:
    """Whether a small matrix product runs under autocast on the CPU, forward and backward."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    weight = torch.ones(8, 8, requires_grad=True)
    try:
        with torch.autocast("cpu", dtype=dtype):
            product = torch.ones(8, 8) @ weight
        torch.autograd.grad(product.float().sum(), weight)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    return product.dtype == dtype


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
    return tuple(name for name in BACKENDS if built[name]), dist.rpc.is_available()
