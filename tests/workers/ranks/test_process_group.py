"""The process group of ranks on GPUs."""

from __future__ import annotations

import ast

from sources import ROOT

from workers.ranks import process_group

COLLECTIVE = {
    "all_reduce",
    "all_gather_object",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather_object",
    "recv",
    "send",
}


def test_the_flight_recorder_writes_to_the_trial_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "17")
    found = process_group.flight_recorder("/trial/logs/nccl-")
    assert found["TORCH_FR_BUFFER_SIZE"] == "17"
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert found["TORCH_FR_DUMP_TEMP_FILE"] == "/trial/logs/nccl-"
    assert process_group.WAIT_FOR_GPUS.total_seconds() <= 900


def test_workloads_and_the_trainer_name_the_group_of_each_collective_call():
    """The default group is NCCL's, whose calls end after ten minutes: ranks wait at gloo."""
    unnamed = []
    for file in [
        *(ROOT / "workers/workloads").rglob("*.py"),
        *(ROOT / "workers/training").glob("*.py"),
    ]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_dist = isinstance(node.func.value, ast.Name) and node.func.value.id == "dist"
                named = any(keyword.arg == "group" for keyword in node.keywords)
                if of_dist and node.func.attr in COLLECTIVE and not named:
                    unnamed.append(f"{file.name}:{node.lineno}")
    assert not unnamed
