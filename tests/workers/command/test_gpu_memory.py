"""The GPU memory of a command is what the driver counts for its processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FakeCuda

PROGRAM = """
import subprocess
smi, enough = sys.argv[1:3]
if len(sys.argv) == 3:
    sys.exit(subprocess.run([sys.executable, "-S", __file__, smi, enough, "child"]).returncode)
with open(smi, "a") as file:
    file.write(f"{os.getppid()}, 1000\\n{os.getpid()}, 2000\\n")
for step in range(1000):
    with open(os.environ["AUTOML_REPORTS"], "a") as file:
        file.write(json.dumps({"step": step, "loss": 1}) + "\\n")
    time.sleep(0.05)
    if os.path.exists(enough):
        sys.exit(0)
sys.exit(1)
"""
SMI = """#!/bin/sh
test "$1" = --query-compute-apps=pid,used_memory && cat {answer}
"""


def test_what_the_driver_counts_for_all_processes_of_a_command(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, enough = tmp_path / "answer", tmp_path / "enough"
    answer.write_text("1, 7000\n")  # of somebody else
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(answer=answer))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=os.pathsep)
    FakeCuda().install(monkeypatch.setattr)
    command.device = "cuda:0"

    def look(report: Any) -> None:
        if command.context.memory.bytes() > 2500 * 2**20:
            enough.touch()

    command.on_report = look
    done = command.python(PROGRAM, str(answer), str(enough))
    assert done.ending == "completed", (done, command.log)
    assert done.peak_memory_bytes == 3000 * 2**20
