"""Finds out which tool has written a file, and reads it. Nothing is run or unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from automl.config.nodes import ConfigProblems
from automl.config.strict_yaml import read_bytes
from automl.errors import UsageError

from . import katib, nni, optuna, ray_tune, wandb
from .sweep import ForeignSweep

_TOOLS: Final[tuple[ModuleType, ...]] = (katib, nni, optuna, wandb, ray_tune)
_PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_KNOWN: Final = (
    "a sweep of Weights & Biases, a search space of NNI, an experiment of Katib, an experiment of "
    "Ray Tune, or a study of Optuna"
)
MAX_BYTES: Final = 64_000_000


def read_foreign(path: Path) -> ForeignSweep:
    """The sweep in a file of another tool.

    Raises:
        UsageError: the file cannot be read, is of no known tool, or has nothing that can be tuned.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--from: {path} cannot be read: {reason}") from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"--from: {path} has more than {MAX_BYTES:,} bytes")
    found = _read(path, raw)
    if not found.goals:
        found.goals = ["minimize loss"]
        found.notes.append(f"the goal is a guess ({found.goals[0]}): the file names no metric")
    if not found.space:
        lost = "".join(f"\n  {note}" for note in found.notes)
        raise UsageError(f"--from: nothing in {path} can be tuned here{lost}")
    return found


def _read(path: Path, raw: bytes) -> ForeignSweep:
    if raw.startswith(_PICKLES) or path.suffix in (".pkl", ".pickle"):
        raise UsageError(
            f"--from: {path} is a pickle, which can run anything when it is read: write the space "
            "as JSON instead"
        )
    if path.suffix in (".py", ".ipynb"):
        raise UsageError(
            f"--from: {path} is a program, which is not run: name a file of {_KNOWN}; docs/guides/"
            "coming-from.md shows how such programs look here"
        )
    if raw.startswith(optuna.SQLITE):
        return optuna.read_file(path)
    if raw.startswith(b'{"op_code"'):
        return optuna.read_journal(raw.decode("utf-8", "replace").splitlines())
    data = _data(path, raw)
    tool = next((tool for tool in _TOOLS if tool.fits(data)), None)
    if tool is None:
        raise UsageError(f"--from: {path} is not recognised: it must be {_KNOWN}")
    try:
        found: ForeignSweep = tool.read(data)
    except UsageError as error:
        raise UsageError(f"--from: {path}: {error}") from error
    return found


def _data(path: Path, raw: bytes) -> Any:
    """The content of a file of JSON or YAML."""
    if raw.lstrip()[:1] == b"{":
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            if path.suffix == ".json":
                raise UsageError(f"--from: {path} is not JSON: {error}") from error
    problems = ConfigProblems()
    root = read_bytes(raw, str(path), problems)
    problems.raise_any(str(path))
    return None if root is None else root.plain()
