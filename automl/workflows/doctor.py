"""Finds out what this machine can run, and what it lacks for the rest."""

import contextlib
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from automl import __version__
from automl.core.text import memory
from automl.dispatch.gpus import Holder, SharedGpu, holders, shared_gpus
from automl.report.console import table
from search_spaces.hardware import PRECISIONS, Hardware, detect
from search_spaces.knobs import KNOBS

PACKAGES = (
    *("torch", "botorch", "gpytorch", "ax-platform", "optuna", "ray", "numpy", "sqlalchemy"),
)
FULL = "runs at full speed"
BACKENDS = {"gloo": "ranks on CPUs", "nccl": "ranks on GPUs", "mpi": "ranks under MPI"}


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
        users = [f"{holder}: {', '.join(holder.gpus)}" for holder in self.holders]
        users += [f"{gpu.uuid} by {', '.join(gpu.users)}" for gpu in others]
        facts = [
            ["host", hardware.host],
            ["CPU cores", str(hardware.num_cpus)],
            ["memory", f"{memory(hardware.memory_bytes)}, the limit of a trial's ranks together"],
            ["GPUs", gpus or "none"],
            ["GPUs in use by", "; ".join(users) or "nobody"],
            ["disk free", memory(self.free_disk_bytes)],
            ["Python", platform.python_version()],
            ["packages", ", ".join(f"{name} {version}" for name, version in self.packages.items())],
        ]
        yes, no = Text("yes", style="green"), Text("no", style="red")
        rows: list[list[RenderableType]] = [
            [f"{one.kind} {one.name}", no if one.lacks else yes, one.lacks or one.summary]
            for one in self.abilities
        ]
        return Group(table(["machine", ""], facts), Text(), table(["can use", "", ""], rows))


def examine(store: str) -> Findings:
    """Examine this machine. Nothing that is written stays.

    Args:
        store: folder or URL that is checked for writing.
    """
    hardware = detect()
    path = (Path.cwd() if "://" in store else Path(store)).absolute()
    there = next(folder for folder in (path, *path.parents) if folder.is_dir())
    slow = hardware.slow
    abilities = [
        *(
            Ability("precision", name, slow.get(name, FULL), hardware.lacks_precision(name) or "")
            for name in PRECISIONS
        ),
        *(
            Ability("backend", name, text, hardware.lacks_backend(name) or "")
            for name, text in BACKENDS.items()
        ),
        *_strategies(hardware),
        _ray(),
        _store(store),
    ]
    found = {"automl-sweep": __version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    free = shutil.disk_usage(there).free
    return Findings(hardware, found, tuple(abilities), free, tuple(holders()), tuple(shared_gpus()))


def _strategies(hardware: Hardware) -> list[Ability]:
    """Each parallelism strategy; the knob that proposes strategies says what this machine lacks."""
    from workers.parallel import requirements

    strategies = requirements()
    plan = sorted({field for needs in strategies.values() for field in needs.get("plan", ())})
    # Constraints are about a model, and there is none here.
    needs_of = {name: {**needs, "constraints": ()} for name, needs in strategies.items()}
    found = KNOBS.get("parallelism")().resolve(hardware, {"strategies": needs_of, "plan": plan})
    lacks = {str(one.value): one.reason for one in found.dropped if one.parameter == "parallelism"}
    return [
        Ability("strategy", name, _needs(needs), lacks.get(name, ""))
        for name, needs in sorted(strategies.items())
    ]


def _needs(needs: dict[str, Any]) -> str:
    plan, constraints = (" and ".join(needs[key]) for key in ("plan", "constraints"))
    declares = f"needs a workload that declares {plan}" if plan else ""
    holds = f"if {constraints}" if constraints else ""
    return "; ".join(filter(None, [str(needs["summary"]), declares, holds]))


def _ray() -> Ability:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return Ability("dispatcher", "ray", "", "needs the package ray")
    summary = f"Ray {version}, workers on one machine or a cluster"
    return Ability("dispatcher", "ray", summary)


def _store(store: str) -> Ability:
    from automl.control.beginning import check_store
    from automl.errors import StoreError

    try:
        check_store(store, whole=True)
    except StoreError as error:
        return Ability("store", store, "", str(error))
    return Ability("store", store, "can be written to")
