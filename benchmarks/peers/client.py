"""Sockeye's own environment, in `benchmarks/.envs`."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVS = ROOT / "benchmarks" / ".envs"
# The arguments of successive calls of `pip install`. Sockeye asks for old torch and numpy, but runs
# with new.
PEERS = {
    "sockeye": [
        ["torch>=2.10,<2.14", "pyyaml", "numpy<2.4", "sacrebleu>=2.4"],
        ["--no-deps", "sockeye==3.1.34"],
    ],
}


class CannotInstall(RuntimeError):
    """The packages of a peer cannot be installed on this machine."""


def environment(name: str) -> Path:
    """The Python of the peer's environment, which is made at the first call.

    Raises:
        CannotInstall: pip failed.
    """
    folder = ENVS / name
    python = folder / "bin" / "python"
    if not installed(name):
        print(f"installing {name} into {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        for packages in PEERS[name]:
            _install(python, packages)
        (folder / ".ready").touch()
    return python


def installed(name: str) -> bool:
    """Whether the peer's environment is there."""
    return (ENVS / name / ".ready").exists()


def _install(python: Path, packages: Sequence[str]) -> None:
    command = [python, "-m", "pip", "install", "-q", *packages]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1] if errors else "pip failed"
        raise CannotInstall(f"pip install {' '.join(packages)}: {reason}")
