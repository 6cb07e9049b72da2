"""Rows of results, one JSON object a line; a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
ROWS = RESULTS / "suggesters.jsonl"
SPEED = RESULTS / "suggestion_seconds.jsonl"
MACHINES = RESULTS / "machines.json"
Row = dict[str, Any]
KEYS = ("problem", "suggester", "seed", "code")
PACKAGES = (
    "numpy",
    "torch",
    "botorch",
    "gpytorch",
    "optuna",
    "ax-platform",
    "scipy",
    "scikit-learn",
)


def load(path: Path, *keys: str) -> dict[tuple[Any, ...], Row]:
    """The last row of each key; a torn last line is left out."""
    rows: dict[tuple[Any, ...], Row] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        key = tuple(row[key] for key in keys)
        rows.pop(key, None)  # in the order in which they were measured last
        rows[key] = row
    return rows


def runs() -> dict[tuple[Any, ...], Row]:
    """By (problem, suggester, seed, version of the suggester's code)."""
    return load(ROWS, *KEYS)


def append(path: Path, row: Row) -> None:
    """Add one row in a single write, after a line break where the last row was torn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and path.stat().st_size and path.read_bytes()[-1:] != b"\n"
    with path.open("a") as file:
        file.write(("\n" if torn else "") + json.dumps({**row, "machine": machine()}) + "\n")


def compact(path: Path, *keys: str) -> None:
    """Keep the last row of each key, so that the file's history stays readable."""
    rows = load(path, *keys)
    if rows:
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
        temporary.replace(path)


def machine() -> int:
    """Number of this machine's description in `machines.json`; it is added where it is new."""
    known: list[Row] = json.loads(MACHINES.read_text()) if MACHINES.exists() else []
    here = describe()
    if here not in known:
        known.append(here)
        MACHINES.parent.mkdir(parents=True, exist_ok=True)
        MACHINES.write_text(json.dumps(known, indent=1) + "\n")
    return known.index(here)


def describe() -> Row:
    """Processor, cores, Python and the versions of the packages that matter."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu
        )
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }
