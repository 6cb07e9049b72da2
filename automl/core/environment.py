"""The environment of a sweep: git commit, package versions and hardware, as plain data."""

import dataclasses
import os
import platform
import socket
import subprocess
import sys
from importlib.metadata import distributions
from typing import Any, Final

from automl import __version__

_PACKAGES: Final = (
    "torch", "botorch", "gpytorch", "ax-platform", "ray", "optuna", "sqlalchemy", "numpy",
    "sacrebleu", "sentencepiece",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Git commit (None outside a repository) and whether it has changes, versions, hardware."""
    commit = _git("rev-parse", "HEAD")
    return {
        "git_commit": commit,
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))
        if commit
        else None,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": {
            "automl": __version__,
            **{name: one.version for name in _PACKAGES for one in distributions(name=name)},
        },
        "hardware": _hardware(),
    }


def _git(*arguments: str) -> str | None:
    """What git prints; None if it cannot be run or fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, errors="replace", timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _hardware() -> dict[str, Any]:
    """All hardware if torch is already imported (its import takes seconds), else CPU and memory."""
    if "torch" in sys.modules:
        from search_spaces.hardware import detect

        return dataclasses.asdict(detect())
    import psutil

    return {"num_cpus": os.cpu_count(), "memory_bytes": psutil.virtual_memory().total}
