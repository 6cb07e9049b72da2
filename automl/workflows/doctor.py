"""Finds out what this machine can run, and what it lacks for the rest."""

import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from automl import __version__
from automl.control.beginning import check_store
from automl.core.text import memory
from automl.dispatch.gpus import holders, shared_gpus
from automl.errors import StoreError
from automl.report.terminal import table
from search_spaces.hardware import PRECISIONS, Hardware, detect
from search_spaces.knobs import KNOBS

PACKAGES: Final = (
    *("torch", "botorch", "gpytorch", "ax-platform", "optuna", "ray", "numpy", "sqlalchemy"),
)
FULL: Final = "runs at full speed"
BACKENDS: Final = {"gloo": "ranks on CPUs", "nccl": "ranks on GPUs", "mpi": "ranks under MPI"}


def examine(store: str) -> dict[str, Any]:
    """Examine this machine: JSON data. Nothing that is written stays.

    Each of `abilities` has a kind, a name, a summary, and why this machine `lacks` it; "" if it
    does not.

    Args:
        store: folder or URL that is checked for writing.
    """
    hardware, packages = detect(), {"automl-sweep": __version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    path = (Path.cwd() if "://" in store else Path(store)).absolute()
    there = next(folder for folder in (path, *path.parents) if folder.is_dir())
    keys = ("kind", "name", "summary", "lacks")
    rows = _abilities(hardware, packages, store)
    return {
        "hardware": asdict(hardware),
        "python": platform.python_version(),
        "packages": packages,
        "abilities": [dict(zip(keys, row, strict=True)) for row in rows],
        "free_disk_bytes": shutil.disk_usage(there).free,
        "holders": [asdict(holder) for holder in holders()],
        "shared_gpus": [asdict(gpu) for gpu in shared_gpus()],
    }


def shown(found: Mapping[str, Any]) -> RenderableType:
    """What `examine` has found, as tables."""
    hardware = found["hardware"]
    gpus = [f"{gpu['name']} ({memory(gpu['memory_bytes'])})" for gpu in hardware["gpus"]]
    leased = {gpu for holder in found["holders"] for gpu in holder["gpus"]}
    users = [
        f"sweep {one['sweep']!r}, process {one['pid']}: {', '.join(one['gpus'])}"
        for one in found["holders"]
    ]
    users += [
        f"{gpu['uuid']} by {', '.join(gpu['users'])}"
        for gpu in found["shared_gpus"]
        if gpu["users"] and gpu["uuid"] not in leased
    ]
    packages = [f"{name} {version}" for name, version in found["packages"].items()]
    facts = [
        ["host", hardware["host"]],
        ["CPU cores", str(hardware["num_cpus"])],
        ["memory", f"{memory(hardware['memory_bytes'])}, the limit of a trial's ranks together"],
        ["GPUs", ", ".join(gpus) or "none"],
        ["GPUs in use by", "; ".join(users) or "nobody"],
        ["disk free", memory(found["free_disk_bytes"])],
        ["Python", found["python"]],
        ["packages", ", ".join(packages)],
    ]
    yes, no = Text("yes", style="green"), Text("no", style="red")
    rows: list[list[RenderableType]] = [
        [
            f"{one['kind']} {one['name']}",
            no if one["lacks"] else yes,
            one["lacks"] or one["summary"],
        ]
        for one in found["abilities"]
    ]
    return Group(table(["machine", ""], facts), Text(), table(["can use", "", ""], rows))


def _abilities(
    hardware: Hardware, packages: Mapping[str, str], store: str
) -> Iterator[tuple[str, str, str, str]]:
    """Kind, name and summary of each feature, and what it lacks here."""
    for name in PRECISIONS:
        summary = hardware.slow.get(name, FULL)
        yield "precision", name, summary, hardware.lacks(name)
    for name, summary in BACKENDS.items():
        yield "backend", name, summary, hardware.lacks(name)
    yield from _strategies(hardware)
    lacks = "" if "ray" in packages else "needs the package ray"
    yield "dispatcher", "ray", "workers on one machine or a cluster", lacks
    yield _store(store)


def _store(store: str) -> tuple[str, str, str, str]:
    try:
        check_store(store, whole=True)
    except StoreError as error:
        return "store", store, "", str(error)
    return "store", store, "can be written to", ""


def _strategies(hardware: Hardware) -> Iterator[tuple[str, str, str, str]]:
    """Each parallelism strategy; the knob that proposes strategies says what this machine lacks."""
    from workers.parallel import requirements

    strategies = requirements()
    plan = sorted({field for needs in strategies.values() for field in needs.get("plan", ())})
    # Constraints are about a model, and there is none here.
    needs_of = {name: {**needs, "constraints": ()} for name, needs in strategies.items()}
    found = KNOBS.get("parallelism")().resolve(hardware, {"strategies": needs_of, "plan": plan})
    lacks = {str(one.value): one.reason for one in found.dropped if one.parameter == "parallelism"}
    for name, needs in sorted(strategies.items()):
        declared = " and ".join(needs["plan"])
        words = f"; needs a workload that declares {declared}" if declared else ""
        yield "strategy", name, f"{needs['summary']}{words}", lacks.get(name, "")
