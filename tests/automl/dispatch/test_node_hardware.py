"""The hardware of a cluster whose nodes differ, as one machine that every trial can count on."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")
from automl.dispatch.ray.nodes import combined
from search_spaces.hardware import Gpu, Hardware

OLD = Hardware(
    8, 64 << 30, (Gpu("V100", 16 << 30, (7, 0), False),) * 2, ("fp32", "fp16"), ("gloo", "nccl")
)
NEW = Hardware(
    16,
    128 << 30,
    (Gpu("H100", 80 << 30, (9, 0), True),),
    ("fp32", "tf32", "bf16", "fp16"),
    ("gloo", "nccl"),
)
HEAD = Hardware(4, 16 << 30, (), ("fp32", "bf16"), ("gloo",), host="head")


def test_a_trial_may_count_on_what_every_node_with_gpus_has() -> None:
    both = combined([(HEAD, 1), (OLD, 2), (NEW, 1)])
    assert (both.num_cpus, both.memory_bytes) == (32, 64 << 30)
    assert [gpu.name for gpu in both.gpus] == ["V100"] * 4 + ["H100"]
    assert (both.precisions, both.backends) == (("fp32", "fp16"), ("gloo", "nccl"))
    assert both.in_slots(1, 1.0, None).num_slots == 5
    assert combined([(NEW, 1)]).precisions == NEW.precisions


def test_without_gpus_the_nodes_are_those_with_cpus() -> None:
    assert combined([(HEAD, 3)]) == Hardware(12, 16 << 30, (), ("fp32", "bf16"), ("gloo",), "head")
