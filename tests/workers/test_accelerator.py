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
from workers.parallel import STRATEGIES
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
        {
            "optimizer": "adam",
            "deterministic": True,
            "activation_checkpointing": "layers",
            "checkpoint_every": 2,
        },
    ],
    "sentiment": [{"optimizer": "adam", "max_norm": 1.0}],
    "translation": [
        {
            "attention_backend": "math",
            "chunked_loss": True,
            "activation_checkpointing": "selective",
            "checkpoint_every": 2,
        },
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


OPTIMIZERS: tuple[Mapping[str, Any], ...] = (
    {"optimizer": "adamw"},
    {"optimizer": "sgd"},
)
STRATEGY_KNOBS: Mapping[str, list[dict[str, Any]]] = {
    # A static graph needs memory that this device cannot pin.
    "ddp": [{"accumulation": 2}],
    "fsdp": [
        {"reshard_after_forward": False},
        {"precision": "bf16", "reduction_precision": "half"},
        {"cpu_offload": True},
        {"accumulation": 2},
        {"activation_checkpointing": "layers"},
    ],
    "tensor": [{"precision": "bf16"}],
    "pipeline": [{"schedule": "gpipe"}, {"precision": "fp16"}, {"schedule": "interleaved1f1b"}],
    "embedding_server": [{"precision": "bf16"}, {"clip_norm": 0.1}],
}
# Under these, tensors of these names lie in main memory.
OFFLOADED = {"embedding_server": "embedding.weight", "cpu_offload": ""}


# torch keeps state in the process that another attempt in it cannot use.
SPENDS_PROCESS = ("embedding_server",)


def strategy_cases(ranks: int) -> list[dict[str, Any]]:
    names = [n for n in STRATEGIES.names() if STRATEGIES.get(n).needs.min_ranks == ranks]
    names.sort(key=SPENDS_PROCESS.__contains__)
    return [
        {
            "workload": None,
            "params": {"parallelism": name, **optimizer, **knobs},
            "fixed": {"evaluate_updates": 1},
            "resume": not knobs and name not in SPENDS_PROCESS,
        }
        for name in names
        for optimizer, knobs in [
            (OPTIMIZERS[0], {}),
            *([(OPTIMIZERS[1], {})] if MORE else []),
            *[(OPTIMIZERS[0], knobs) for knobs in STRATEGY_KNOBS.get(name, []) if MORE],
        ]
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [2, 4] if MORE else [2])
def test_every_strategy_trains_on_the_device_as_single_does(tmp_path, ranks):
    given = strategy_cases(ranks)
    backend = {"backend": "cpu:gloo,fakegpu:gloo"}
    together = [{**case, "fixed": {**case["fixed"], **backend}} for case in given]
    alone = [{**case, "params": {**case["params"], "parallelism": "single"}} for case in given]
    differing = [case for index, case in enumerate(alone) if case not in alone[:index]]
    found = trained(tmp_path / "together", together, ranks=ranks)
    expected = trained(tmp_path / "alone", differing)
    wrong = []
    for index, case in enumerate(given):
        single = expected[differing.index(alone[index])]
        params, mine = case["params"], found[index * ranks : (index + 1) * ranks]
        failures = [one["message"] for one in [*mine, single] if one["failure"]]
        kept = [OFFLOADED[key] for key in {*params, params["parallelism"]} & {*OFFLOADED}]
        strays = [s for one in mine for s in one["strays"] if not any(name in s for name in kept)]
        near = pytest.approx(single["losses"], rel=2e-2 if "precision" in params else 1e-5)
        if failures or strays or mine[0]["losses"] != near or not single["losses"]:
            wrong.append((params, failures, strays, mine[0]["losses"], single["losses"]))
    assert not wrong, wrong


FAULTS = {
    "the batch stays on the CPU": (
        "from workers.batches import CountedRows\nCountedRows.to = lambda self, device: self",
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
    given = [{"workload": None, "params": {}}]
    [found] = trained(tmp_path, given, statement)
    assert message in found["message"], found
