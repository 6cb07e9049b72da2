"""The memory of a trial's child processes is measured too."""

from __future__ import annotations

import subprocess
import sys
import time

MB = 2**20
FILL = "; kept[::4096] = b'x' * len(kept[::4096]); "
CHILD = f"import sys; kept = bytearray(80 * 2**20){FILL}sys.stdin.read()"


def test_memory_of_child_processes_counts(runner):
    before = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE)

    def objective(context):
        inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
        outer = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while context.memory.bytes() < 80 * MB and time.monotonic() < deadline:
            time.sleep(0.05)
        outer.communicate()
        return {"loss": 1.0}

    runner.objective = objective
    try:
        time.sleep(0.5)
        assert 80 * MB < runner().peak_memory_bytes < 130 * MB
    finally:
        before.kill()
        before.wait()
