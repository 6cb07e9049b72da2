"""The process group of ranks on GPUs."""

from __future__ import annotations

import ast

from sources import ROOT

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
