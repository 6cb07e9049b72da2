"""The machine: its GPUs, the versions of the software, and what the search space would see."""

from __future__ import annotations

import itertools
import pkgutil
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.common.bounds import Claim, complete
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target

PACKAGES = ("torch", "triton", "numpy", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "ray")
PROGRAMS = ("gcc", "g++", "nvcc", "nvidia-smi")
# What the code calls by name and torch has changed, or may, between 2.11 and 2.13.
NAMES = (
    "torch.amp.GradScaler",
    "torch.accelerator.current_accelerator",
    "torch.backends.cuda.matmul.fp32_precision",
    "torch.compiler.cudagraph_mark_step_begin",
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed.fsdp.register_fsdp_forward_method",
    "torch.distributed.pipelining.PipelineStage",
    "torch.distributed.tensor.parallel.parallelize_module",
    "torch.nn.attention.sdpa_kernel",
    "torch.overrides.TorchFunctionMode",
    "torch.utils.checkpoint.create_selective_checkpoint_contexts",
)


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    return [Case("hardware", {}, "hardware", 60.0, quick=True)]


def measure(target: Target, case: Case) -> Row:
    import torch

    from search_spaces.hardware import detect

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    found = asdict(detect())
    return {
        "hardware": {key: found[key] for key in ("num_cpus", "gpus", "precisions", "backends")},
        "versions": versions,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "between": between(torch.cuda.device_count()),
        "missing_names": [name for name in NAMES if not known(name)],
        "programs": {name: shutil.which(name) is not None for name in PROGRAMS},
    }


def known(name: str) -> bool:
    """Whether this torch has what a dotted name says."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def between(count: int) -> Mapping[str, Any]:
    """Pairs of GPUs that read each other's memory, of all pairs, and free shared memory."""
    import torch

    pairs = list(itertools.combinations(range(count), 2))
    reached = [torch.cuda.can_device_access_peer(*pair) for pair in pairs]
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    return {"pairs": len(pairs), "p2p": sum(reached), "shared_memory_bytes": free}


def claims(rows: Rows) -> list[Claim]:
    missing = rows["hardware"].get("missing_names", []) if "hardware" in rows else ["hardware"]
    return [complete("the hardware was read, and torch has every name", missing)]


def line(row: Row) -> str:
    hardware = row["hardware"]
    gpus = ", ".join(gpu["name"] for gpu in hardware["gpus"]) or "no GPU"
    formats = " ".join(hardware["precisions"])
    between = row["between"]
    return (
        f"{hardware['num_cpus']} cores, {gpus}, {formats}, {' '.join(hardware['backends'])}, "
        f"P2P of {between['p2p']} of {between['pairs']} pairs, "
        f"{between['shared_memory_bytes'] / 1e9:.1f} GB of shared memory"
    )


STAGE = Stage("hardware, versions, what detect() finds", cases, measure, claims, line)
