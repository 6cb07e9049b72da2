"""Rows of results: one JSON object a line, so that an interrupted run can be continued."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterable
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
    """The last row of each key, in the order in which they were measured last."""
    rows: dict[tuple[Any, ...], Row] = {}
    for row in read(path):
        key = tuple(row[key] for key in keys)
        rows.pop(key, None)
        rows[key] = row
    return rows


def read(path: Path) -> list[Row]:
    """Every row of a file, without a last line that was cut short; empty if there is no file."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def line(row: Row) -> str:
    """The row as JSON without spaces: a tenth less to keep."""
    return json.dumps(row, separators=(",", ":")) + "\n"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace a file by these rows."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(map(line, rows)))
    temporary.replace(path)


def runs() -> dict[tuple[Any, ...], Row]:
    """Runs of suggesters by (problem, suggester, seed, fingerprint of the suggester's code)."""
    return load(ROWS, *KEYS)


def append(path: Path, row: Row) -> None:
    """Add one row with the number of this machine."""
    add(path, {**row, "machine": machine()})


def add(path: Path, row: Row) -> None:
    """Add one row in a single write, after a line break if the last row was cut short."""
    torn = path.exists() and path.stat().st_size and path.read_bytes()[-1:] != b"\n"
    with path.open("a") as file:
        file.write(("\n" if torn else "") + line(row))


def compact(path: Path, *keys: str) -> None:
    """Keep the last row of each key only."""
    rows = load(path, *keys)
    if rows:
        write(path, rows.values())


def machine() -> int:
    """Number of this machine's description in `machines.json`; a new one is added."""
    known: list[Row] = json.loads(MACHINES.read_text()) if MACHINES.exists() else []
    here = describe()
    if here not in known:
        known.append(here)
        MACHINES.write_text(json.dumps(known, indent=1) + "\n")
    return known.index(here)


def describe() -> Row:
    """Processor, cores, Python and the versions of the packages that matter."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }


def processor() -> str:
    """The name of the processor, as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
