"""A program that answers as nvidia-smi does."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

PROGRAM = """#!/bin/sh
echo "$1" >>{folder}/asked
case "$1" in
  --query-gpu=index,uuid,memory.total) cat {folder}/gpus ;;
  --query-compute-apps=gpu_uuid,pid,used_memory) cat {folder}/apps ;;
  *) exit 6 ;;
esac
"""


class FakeSmi:
    """Puts the program on PATH, with GPUs of these UUIDs and nobody that uses them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *uuids: str) -> None:
        folder.mkdir()
        program = folder / "nvidia-smi"
        program.write_text(PROGRAM.format(folder=folder))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (folder / "gpus").write_text("".join(f"{i}, {u}, 81559\n" for i, u in enumerate(uuids)))
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        self._apps = folder / "apps"
        self.use({})

    @property
    def num_asked(self) -> int:
        """How often the program was run."""
        return len((self._apps.parent / "asked").read_text().splitlines())

    def use(self, users: Mapping[str, int]) -> None:
        """From now on these processes use these GPUs."""
        lines = "".join(f"{uuid}, {pid}, 5120\n" for uuid, pid in users.items())
        self._apps.with_suffix(".new").write_text(lines)
        self._apps.with_suffix(".new").replace(self._apps)
