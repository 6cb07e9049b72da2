"""Finds out what this machine can run, and what it lacks for the rest."""

import contextlib
import itertools
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from automl import __version__
from automl.core.text import memory
from automl.dispatch.gpu_locks import Holder, holders
from automl.dispatch.gpus import SharedGpu, shared_gpus
from automl.report.console import table
from search_spaces.hardware import PRECISIONS, Hardware, detect
from search_spaces.knobs import KNOBS

REQUIRED_RAY = (2, 52)
SHARED_MEMORY: Final = Path("/dev/shm")
# What NVIDIA advises for a container (NCCL documentation, "Troubleshooting").
MIN_SHARED_BYTES: Final = 1_000_000_000
PACKAGES = (
    "torch",
    "botorch",
    "gpytorch",
    "ax-platform",
    "optuna",
    "ray",
    "numpy",
    "sqlalchemy",
)


@dataclass(frozen=True)
class Ability:
    """A feature of automl. `lacks` says why this machine cannot use it; it is empty if it can."""

    kind: str
    name: str
    summary: str
    lacks: str = ""


@dataclass(frozen=True)
class Findings:
    """The result of `automl doctor`."""

    hardware: Hardware
    packages: dict[str, str]
    abilities: tuple[Ability, ...]
    free_disk_bytes: int
    holders: tuple[Holder, ...] = ()
    shared_gpus: tuple[SharedGpu, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The findings as JSON data."""
        return {
            "hardware": self.hardware.to_dict(),
            "python": platform.python_version(),
            "packages": self.packages,
            "abilities": [vars(ability) for ability in self.abilities],
            "free_disk_bytes": self.free_disk_bytes,
            "holders": [asdict(holder) for holder in self.holders],
            "shared_gpus": [asdict(gpu) for gpu in self.shared_gpus],
        }

    def render(self) -> RenderableType:
        """The findings as tables."""
        hardware = self.hardware
        gpus = ", ".join(f"{gpu.name} ({memory(gpu.memory_bytes)})" for gpu in hardware.gpus)
        leased = {gpu for holder in self.holders for gpu in holder.gpus}
        others = (gpu for gpu in self.shared_gpus if gpu.users and gpu.uuid not in leased)
        foreign = "; ".join(f"{gpu.uuid} by {', '.join(gpu.users)}" for gpu in others)
        facts = [
            ["host", hardware.host],
            ["CPU cores", str(hardware.num_cpus)],
            ["memory", f"{memory(hardware.memory_bytes)}, the limit of a trial's ranks together"],
            ["GPUs", gpus or "none"],
            ["GPUs in use by", "; ".join(map(_holding, self.holders)) or "no sweep"],
            ["GPUs of others", foreign or "none"],
            ["disk free", memory(self.free_disk_bytes)],
            ["Python", platform.python_version()],
            ["packages", ", ".join(f"{name} {version}" for name, version in self.packages.items())],
        ]
        rows: list[list[RenderableType]] = [
            [
                f"{one.kind} {one.name}",
                Text("no", style="red") if one.lacks else Text("yes", style="green"),
                one.lacks or one.summary,
            ]
            for one in self.abilities
        ]
        return Group(table(["machine", ""], facts), Text(), table(["can use", "", ""], rows))


def examine(store: str) -> Findings:
    """Examine this machine. Nothing that is written stays.

    Args:
        store: folder or URL that is checked for writing.
    """
    hardware = detect()
    free = shutil.disk_usage(_existing(Path(store) if "://" not in store else Path.cwd())).free
    abilities = (
        *_unsupported_devices(),
        *_precisions(hardware),
        *_backends(hardware),
        *_between_gpus(len(hardware.gpus)),
        *_strategies(hardware),
        _ray(),
        _store(store),
    )
    return Findings(hardware, _versions(), abilities, free, tuple(holders()), tuple(shared_gpus()))


def _holding(holder: Holder) -> str:
    return f"{holder}: {', '.join(holder.gpus)}"


def _versions() -> dict[str, str]:
    found = {"automl-sweep": __version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _unsupported_devices() -> list[Ability]:
    """The devices of this machine that torch can use and automl does not."""
    import torch

    found = {
        "mps": ("the GPU of a Mac", torch.backends.mps.is_available()),
        "xpu": ("a GPU of Intel's", torch.xpu.is_available()),
    }
    return [
        Ability("device", name, "", f"{text} is not supported: trials train on the CPU")
        for name, (text, here) in found.items()
        if here
    ]


def _precisions(hardware: Hardware) -> list[Ability]:
    return [
        Ability(
            "precision",
            precision,
            hardware.slow.get(precision, "runs at full speed"),
            hardware.lacks_precision(precision) or "",
        )
        for precision in PRECISIONS
    ]


def _backends(hardware: Hardware) -> list[Ability]:
    summaries = {"gloo": "ranks on CPUs", "nccl": "ranks on GPUs", "mpi": "ranks under MPI"}
    return [
        Ability("backend", name, text, hardware.lacks_backend(name) or "")
        for name, text in summaries.items()
    ]


def _between_gpus(count: int) -> list[Ability]:
    """How the ranks of a trial exchange data if each has a GPU; nothing if there is one GPU."""
    if count < 2:
        return []
    import torch

    pairs = itertools.combinations(range(min(count, torch.cuda.device_count())), 2)
    apart = [f"{a} and {b}" for a, b in pairs if not torch.cuda.can_device_access_peer(a, b)]
    far = f"{', '.join(apart)} do not: they exchange data through main memory, which is slower"
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    small = f"{SHARED_MEMORY} has {memory(free)} free: ranks on GPUs may fail; give it 1 GB"
    return [
        Ability("GPUs", "P2P", "each GPU reads the memory of each other", far if apart else ""),
        Ability(
            "GPUs",
            "shared memory",
            f"{memory(free)} in {SHARED_MEMORY} for NCCL",
            small if free < MIN_SHARED_BYTES else "",
        ),
    ]


def _strategies(hardware: Hardware) -> list[Ability]:
    """Each parallelism strategy; the knob that proposes strategies says what this machine lacks."""
    from workers.parallel import requirements

    strategies = requirements()
    everything = {field for needs in strategies.values() for field in needs.get("plan", ())}
    # Constraints are about a model, and there is none here.
    needs_of = {name: {**needs, "constraints": ()} for name, needs in strategies.items()}
    found = KNOBS.get("parallelism")().resolve(
        hardware, {"strategies": needs_of, "plan": sorted(everything)}
    )
    lacks = {
        str(item.value): item.reason for item in found.dropped if item.parameter == "parallelism"
    }
    return [
        Ability("strategy", name, _needs(needs), lacks.get(name, ""))
        for name, needs in sorted(strategies.items())
    ]


def _needs(needs: dict[str, Any]) -> str:
    plan, constraints = (" and ".join(needs[key]) for key in ("plan", "constraints"))
    declares = f"needs a workload that declares {plan}" if plan else ""
    return "; ".join(
        filter(None, [str(needs["summary"]), declares, f"if {constraints}" if constraints else ""])
    )


def _ray() -> Ability:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return Ability("dispatcher", "ray", "", "needs the package ray")
    old = tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < REQUIRED_RAY
    needed = f"needs ray {'.'.join(map(str, REQUIRED_RAY))} or later for its token authentication"
    summary = f"Ray {version}, workers on one machine or a cluster"
    return Ability("dispatcher", "ray", summary, needed if old else "")


def _store(store: str) -> Ability:
    from automl.control.preflight import check_store
    from automl.errors import StoreError

    try:
        check_store(store, whole=True)
    except StoreError as error:
        return Ability("store", store, "", str(error))
    return Ability("store", store, "can be written to")


def _existing(path: Path) -> Path:
    """The path if it is a folder, otherwise its nearest parent that exists."""
    path = path.absolute()
    return next(parent for parent in (path, *path.parents) if parent.is_dir())
