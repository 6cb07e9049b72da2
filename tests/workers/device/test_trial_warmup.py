"""The first trial of a worker is measured like the others: without its imports, with children."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from pathlib import Path

import pytest

MB = 2**20
FILL = "; kept[::4096] = b'x' * len(kept[::4096]); "
MODULE = f"import time; time.sleep(0.4); kept = bytearray(60 * 2**20){FILL}"
CHILD = f"import sys; kept = bytearray(80 * 2**20){FILL}sys.stdin.read()"


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that takes 0.4 seconds and 60 MB, not yet imported."""
    name = "slow_to_import"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "outer_of_slow.py").write_text(f"import {name}\nimport absent_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_imports_are_not_the_trials(runner, slow_module):
    def objective(context):
        # A bytearray could lie in memory that this process has freed but still holds.
        with mmap.mmap(-1, 30 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
            for page in range(0, 30 * MB, mmap.PAGESIZE):
                block[page] = 1
        __import__(slow_module)
        context.report(1, loss=1.0)
        return {"loss": 1.0}

    runner.objective = objective
    began = time.monotonic()
    first = runner()
    wall = time.monotonic() - began
    reported = runner.reports[0].seconds
    second = runner()
    assert first.details["warmup_seconds"] >= 0.4
    assert first.details["warmup_bytes"] > 50 * MB
    assert not {"warmup_seconds", "warmup_bytes"} & second.details.keys()
    assert max(first.seconds, reported) <= wall - first.details["warmup_seconds"]
    for outcome in (first, second):
        assert 25 * MB < outcome.peak_memory_bytes < 50 * MB, "the block before the import"


def test_the_traceback_of_a_failed_import_is_the_users(runner, slow_module):
    def objective(context):
        import outer_of_slow  # noqa: F401

    runner.objective = objective
    outcome = runner()
    assert outcome.message == "ModuleNotFoundError: No module named 'absent_module'"
    assert "outer_of_slow.py" in outcome.details["traceback"]
    assert "device/warmup.py" not in outcome.details["traceback"]


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
