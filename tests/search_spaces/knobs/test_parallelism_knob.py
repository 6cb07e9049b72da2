"""The parallelism knob: strategies that hardware and workload can run, and their constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from resolved import NEW, by_name, choices, resolve

from search_spaces import Choice, Int, Space, SpaceError
from search_spaces.hardware import Hardware

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "single": {"min_ranks": 1},
    "tensor": {"plan": ["tensor"], "constraints": ["num_heads % ranks == 0"]},
    "pipeline": {
        "plan": ["stages"],
        "constraints": ["num_layers >= ranks", "batch_size % microbatches == 0"],
        "parameters": [
            Choice("microbatches", [2, 4, 8], ordered=True, default=4).to_dict(),
            Choice("schedule", ["gpipe", "1f1b"], default="1f1b").to_dict(),
        ],
    },
    "data_pipeline": {
        "min_ranks": 4,
        "plan": ["stages"],
        "parameters": [Choice("microbatches", [2, 4, 8], ordered=True, default=4).to_dict()],
    },
    "embedding_server": {"plan": ["embeddings"], "rpc": True},
    "nccl_only": {"backends": ["nccl"]},
    "wide": {"min_ranks": 64},
}
EVERYTHING = ("tensor", "stages", "embeddings")


def test_parallelism_without_declarations() -> None:
    declared = resolve("parallelism", slots=4)
    assert choices(declared, "parallelism") == ["single", "ddp"]
    assert choices(declared, "ranks") == [2, 4]
    assert by_name(declared)["ranks"].when == {"parallelism": ("ddp",)}
    alone = resolve("parallelism", slots=1)
    assert choices(alone, "parallelism") == ["single"]
    assert "ranks" not in by_name(alone)
    assert [str(d) for d in alone.dropped] == [
        "parallelism 'ddp': needs at least 2 ranks; there are 1 slots"
    ]


def test_parallelism_says_why_not() -> None:
    declared = resolve("parallelism", strategies=STRATEGIES, slots=2)
    assert choices(declared, "parallelism") == ["single", "ddp"]
    reasons = {str(dropped.value): dropped.reason for dropped in declared.dropped}
    assert reasons == {
        "tensor": "needs a workload that declares tensor",
        "pipeline": "needs a workload that declares stages",
        "data_pipeline": "needs a workload that declares stages",
        "embedding_server": "needs a workload that declares embeddings",
        "nccl_only": "needs torch built with NCCL and a CUDA GPU; here: gloo",
        "wide": "needs at least 64 ranks; there are 2 slots",
    }
    on_gpu = resolve("parallelism", NEW, strategies=STRATEGIES, plan=EVERYTHING)
    assert choices(on_gpu, "parallelism") == [
        "single",
        "ddp",
        "tensor",
        "pipeline",
        "data_pipeline",
        "nccl_only",
    ]
    assert {str(d.value) for d in on_gpu.dropped} == {"embedding_server", "wide"}
    no_nccl = Hardware(8, 2**34, NEW.gpus, NEW.precisions, ("gloo",))
    reason = {
        str(d.value): d.reason
        for d in resolve("parallelism", no_nccl, strategies=STRATEGIES).dropped
    }["nccl_only"]
    assert reason == "needs torch built with NCCL and a CUDA GPU; here: gloo"


def test_every_sampled_strategy_can_run() -> None:
    declared = resolve(
        "parallelism", strategies=STRATEGIES, slots=8, plan=EVERYTHING, ranks=[2, 3, 4, 8, 16]
    )
    assert [(d.parameter, d.value) for d in declared.dropped if d.parameter == "ranks"] == [
        ("ranks", 16)
    ]
    model = [Int("num_layers", 1, 6), Choice("num_heads", [1, 2, 4]), Int("batch_size", 1, 64)]
    space = Space(*declared.parameters, *model, constraints=declared.constraints)
    met = set()
    for params in space.sample(np.random.default_rng(0), 3000):
        name, ranks = params["parallelism"], params.get("ranks")
        met.add((name, ranks))
        assert (ranks is None) == (name == "single")
        assert ("microbatches" in params) == (name in ("pipeline", "data_pipeline"))
        assert ("schedule" in params) == (name == "pipeline")
        if name == "tensor":
            assert params["num_heads"] % ranks == 0
        if name == "pipeline":
            assert params["num_layers"] >= ranks
            assert params["batch_size"] % params["microbatches"] == 0
        if name == "data_pipeline":
            assert ranks >= 4
    assert {
        ("single", None),
        ("ddp", 8),
        ("tensor", 2),
        ("pipeline", 3),
        ("data_pipeline", 8),
    } <= met


def test_what_is_not_tuned_is_put_into_constraints() -> None:
    strategies = {name: STRATEGIES[name] for name in ("single", "ddp", "tensor")}
    declared = resolve(
        "parallelism",
        strategies=strategies,
        slots=8,
        plan=["tensor"],
        values={"num_heads": 4},
        ranks=[2, 3, 4, 8],
    )
    assert declared.constraints == ["parallelism != 'tensor' or ranks in (2, 4,)"]
    odd = resolve(
        "parallelism", strategies=strategies, slots=2, plan=["tensor"], values={"num_heads": 3}
    )
    assert choices(odd, "parallelism") == ["single", "ddp"]
    assert odd.dropped[0].reason == "needs 3 % ranks == 0, which no number of ranks here satisfies"


def test_choosing_among_strategies() -> None:
    declared = resolve(
        "parallelism", strategies=STRATEGIES, parallelism=["ddp", "single"], ranks={"default": 2}
    )
    assert choices(declared, "parallelism") == ["single", "ddp"]
    assert declared.dropped == []
    with pytest.raises(SpaceError, match="parallelism is one of"):
        resolve("parallelism", parallelism=["dpp"])
    assert resolve("parallelism", parallelism=False).parameters == []
