"""Every workload, optimizer and knob takes two updates on a device that is not the CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from fake_accelerator import trained

from search_spaces import Space
from search_spaces.hardware import Gpu, Hardware
from workers.workloads import WORKLOADS

MORE = "AUTOML_TEST_ALL" in os.environ
GPU = Gpu("fake", 80 * 2**30, (9, 0), bf16=True)
MACHINE = Hardware(2, 2**34, (GPU,), ("fp32", "bf16", "fp16"), ("gloo", "nccl"), slots=1)
# The fake device compiles nothing, and a trace keeps its sizes as constants.
WITHOUT: Mapping[str, frozenset[Any]] = {
    "compile": frozenset({"default", "reduce-overhead", "max-autotune", "cudagraphs"}),
    "graph": frozenset({"compiled", "traced"}),
}
# What only a configuration adds, on top of one of the sampled configurations.
NAMED: Mapping[str, list[dict[str, Any]]] = {
    "image_classification": [
        {"optimizer": "adafactor", "deterministic": True},
        {"activation_checkpointing": "layers", "checkpoint_every": 2},
    ],
    "sentiment": [{"optimizer": "adam", "max_norm": 1.0}],
    "translation": [
        {"optimizer": "muon", "attention_backend": "math"},
        {"chunked_loss": True, "activation_checkpointing": "selective", "checkpoint_every": 2},
    ],
}


def pairs(params: Mapping[str, Any], space: Space) -> set[Any]:
    """The pairs of values of a configuration; a number counts as low or high."""
    found = []
    for name, value in sorted(params.items()):
        choices = getattr(space.parameters[name], "choices", None)
        found.append(
            (name, repr(value) if choices else space.parameters[name].to_unit(value) > 0.5)
        )
    return {*combinations(found, 2), *((one,) for one in found)}


def covering(space: Space, most: int) -> list[dict[str, Any]]:
    """At most so many configurations, each with the most pairs that none before has."""
    rng = np.random.default_rng(7)
    drawn = [
        params
        for params in space.sample(rng, 400)
        if not any(params.get(name) in bad for name, bad in WITHOUT.items())
    ]
    left = [(params, pairs(params, space)) for params in drawn]
    seen: set[Any] = set()
    chosen = []
    while len(chosen) < most and left:
        best = max(left, key=lambda one: len(one[1] - seen))
        if not best[1] - seen:
            break
        seen |= best[1]
        chosen.append(dict(best[0]))
    return chosen


def cases(name: str) -> list[dict[str, Any]]:
    kind = WORKLOADS.get(name)
    fixed = kind.smallest["fixed"]
    space = kind.space(MACHINE)
    # graph_embedding: torch ends the process if its sampled losses run on such a device.
    found = [space.default()] if name == "graph_embedding" else covering(space, 60 if MORE else 2)
    found += [{**found[0], **more} for more in NAMED.get(name, ())]
    return [
        {
            "workload": name,
            "params": {key: value for key, value in params.items() if key not in fixed},
            **kind.smallest,
            "resume": name in ("image_classification", "translation") and index == 0,
        }
        for index, params in enumerate(found)
    ]


def problems(found: list[dict[str, Any]], given: list[dict[str, Any]]) -> list[str]:
    return [
        f"{case['workload']} {case['params']}: {one['message'][:300]} {one['strays']}"
        for case, one in zip(given, found, strict=True)
        if one["failure"] or one["strays"] or one["updates"] not in (2.0, 4.0, None)
    ]


def test_every_workload_and_knob_trains_on_the_device(tmp_path):
    names = [name for name in WORKLOADS.names() if WORKLOADS.get(name).smallest]
    given = [case for name in names for case in cases(name)]
    assert len(given) > 2 * len(names)
    assert problems(trained(tmp_path, given), given) == []


FAULTS = {
    "the batch stays on the CPU": (
        "from workers.data.batch import CountedRows\nCountedRows.to = lambda self, device: self",
        "Expected all tensors to be on the same device",
    ),
    "the state of the optimizer is made on the CPU": (
        "import torch\nlike = torch.zeros_like\n"
        "torch.zeros_like = lambda t, **more: like(t, **{**more, 'device': 'cpu'})",
        "Expected all tensors to be on the same device",
    ),
    "the weights are brought to the CPU": (
        "from workers.training import setup\nplain = setup.compile_model\n"
        "setup.compile_model = lambda model, *rest: (model.to('cpu'), plain(model, *rest))",
        "Expected all tensors to be on the same device",
    ),
}


@pytest.mark.parametrize("fault", FAULTS if MORE else list(FAULTS)[:1])
def test_a_tensor_on_the_wrong_device_is_noticed(tmp_path, fault):
    statement, message = FAULTS[fault]
    given = [{"workload": None, "params": {"optimizer_implementation": "fused"}}]
    [found] = trained(tmp_path, given, statement)
    assert message in found["message"], found
