"""Knobs that no shipped space has: what they require, and which values remain."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from resolved import CPU, NEW, OLD, by_name, choices, resolve

from automl.config.resolution import Tunable
from search_spaces import Space
from search_spaces.knobs import float8
from search_spaces.knobs.base import ON_REQUEST
from search_spaces.knobs.table import DeterminismKnob, KernelsKnob
from search_spaces.parameters import parameter_from_dict
from workers.parallel.strategies.pipeline import SCHEDULE
from workers.workloads import WORKLOADS

MODES = {"max-autotune", "cudagraphs"}


def test_a_library_that_the_gpu_lacks_is_left_out() -> None:
    assert choices(resolve("kernels"), "attention_backend") == ["auto", "flash", "math"]
    old = resolve("kernels", OLD)
    assert choices(old, "attention_backend") == ["auto", "efficient", "math"]
    assert "capability 8.0" in old.dropped[0].reason
    assert len(choices(resolve("kernels", NEW), "attention_backend")) == 5


def test_products_in_8_bits_need_a_gpu_and_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = replace(NEW, precisions=("fp32", "bf16", "fp16"))
    for hardware in (CPU, OLD, amd):
        [dropped] = resolve("float8", hardware).dropped
        assert str(dropped).endswith("needs an NVIDIA GPU of capability 9.0 or later")
    monkeypatch.setattr(float8, "find_spec", lambda name: None)
    [dropped] = resolve("float8", NEW).dropped
    assert str(dropped).endswith("pip install 'automl-sweep[float8]'")
    monkeypatch.setattr(float8, "find_spec", lambda name: name)
    assert choices(resolve("float8", NEW), "float8") == ["off", "rowwise"]


def test_a_schedule_that_is_named_is_legal_by_construction() -> None:
    tunable = Tunable.of(WORKLOADS.get("translation"), lambda: NEW)
    lacking = tunable.unavailable("schedule")
    assert lacking == dict.fromkeys(SCHEDULE.on_request, ON_REQUEST)
    assert tunable.unavailable("schedule", explicit=True) == {}
    schedule = tunable.parameters["schedule"].to_dict()
    schedule |= {"choices": [*SCHEDULE.choices, *SCHEDULE.on_request]}
    parameters = {**tunable.parameters, "schedule": parameter_from_dict(schedule)}
    depth = parameter_from_dict({"name": "num_layers", "type": "int", "low": 1, "high": 8})
    parameters["num_layers"] = depth
    found = Space(*parameters.values(), constraints=tunable.constraints)
    drawn = found.sample(np.random.default_rng(0), 3000)
    piped = [one for one in drawn if one["parallelism"] == "pipeline"]
    assert {one["schedule"] for one in piped} == set(schedule["choices"])
    for one in piped:
        stages = one["ranks"] * (1 if one["schedule"] in SCHEDULE.choices else 2)
        assert one["num_layers"] >= stages, one


def test_shards_in_main_memory_need_a_gpu() -> None:
    assert resolve("offload").parameters == []
    assert str(resolve("offload").dropped[0]).startswith("cpu_offload True: trials run in main")
    found = by_name(resolve("offload", NEW))["cpu_offload"]
    assert found.when == {"parallelism": ("fsdp", "hsdp")}


def test_modes_that_record_graphs_need_a_gpu() -> None:
    lacking = {item.value: item.reason for item in resolve("runtime").dropped}
    assert "CUDA GPU" in lacking["cudagraphs"]
    assert lacking["max-autotune"] == ON_REQUEST
    dropped = resolve("runtime", NEW).dropped
    on_gpu = {item.value: item.reason for item in dropped if item.parameter == "compile"}
    assert on_gpu == dict.fromkeys(MODES, ON_REQUEST)
    wanted = resolve("runtime", NEW, compile=["off", "max-autotune"])
    assert choices(wanted, "compile") == ["off", "max-autotune"]


@pytest.mark.parametrize("chosen", ["auto", "flash", "math"])
def test_the_library_is_chosen_for_the_trial_only(chosen: str) -> None:
    before = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    with KernelsKnob().applied({"attention_backend": chosen}):
        assert torch.backends.cuda.flash_sdp_enabled() == (chosen != "math")
        assert torch.backends.cuda.math_sdp_enabled()
    after = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    assert after == before


def test_algorithms_are_deterministic_for_the_trial_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with DeterminismKnob().applied({"deterministic": True}):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    with DeterminismKnob().applied({}):
        assert not torch.are_deterministic_algorithms_enabled()
