"""Parameters and values that a configuration must name before they are tuned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_config_resolution import resolve

from automl.config.resolution import Tunable
from automl.errors import ConfigError
from search_spaces.hardware import Gpu, Hardware
from workers.workloads import WORKLOADS

GPU = Gpu("H100", 80 << 30, (9, 0), True)
EIGHT = Hardware(
    64, 1 << 38, (GPU,) * 8, ("fp32", "tf32", "bf16", "fp16"), ("gloo", "nccl"), rpc=False
)
ONE = replace(EIGHT, gpus=(GPU,))


def declared(hardware: Hardware = EIGHT, name: str = "translation") -> Tunable:
    return Tunable.of(WORKLOADS.get(name), lambda: hardware)


def test_the_default_space_has_none_and_fixes_none() -> None:
    space, resolution = resolve("space: auto", tunable=declared())
    assert "attention_backend" not in space.parameters
    assert "max-autotune" not in space.parameters["compile"].choices
    assert not {"attention_backend", "tensor_degree", "optimizer"} & set(resolution.untuned())
    assert not any("tensor_degree" in str(constraint) for constraint in space.constraints)


def test_a_knob_or_a_list_of_values_names_them() -> None:
    text = "space: {attention_backend: auto, loader_workers: auto, deterministic: [true, false]}"
    space, _ = resolve(text, tunable=declared())
    assert len(space.parameters["attention_backend"].choices) == 5
    assert {"loader_workers", "deterministic"} <= set(space.parameters)
    space, _ = resolve("space: {compile: [off, max-autotune]}", tunable=declared())
    assert space.parameters["compile"].choices == ("off", "max-autotune")


def test_a_value_that_the_hardware_lacks_stays_out() -> None:
    space, resolution = resolve(
        "space: {attention_backend: [flash, cudnn], learning_rate: auto}",
        tunable=declared(Hardware(4, 8 << 30)),
    )
    assert space.parameters["attention_backend"].choices == ("flash",)
    assert [item.value for item in resolution.dropped] == ["cudnn"]


def test_degrees_divide_the_ranks_and_the_heads() -> None:
    text = (
        "space: {parallelism: [single, data_tensor], ranks: [4, 8], num_heads: [2, 4, 8], "
        "tensor_degree: auto}"
    )
    space, _ = resolve(text, tunable=declared())
    assert tuple(space.parameters["tensor_degree"].choices) == (2, 4, 8)
    whole = {"parallelism": "data_tensor", "ranks": 4, "num_heads": 4, "tensor_degree": 4}
    assert space.legal(whole)
    assert not space.legal({**whole, "tensor_degree": 8})
    assert not space.legal({**whole, "num_heads": 2})
    assert space.legal({"parallelism": "single", "num_heads": 2})
    fixed, _ = resolve(f"{text.replace(', tensor_degree: auto', '')}\nfixed: {{tensor_degree: 8}}",
                       tunable=declared())  # fmt: skip
    assert not fixed.legal({"parallelism": "data_tensor", "ranks": 4, "num_heads": 8})


def test_recorded_graphs_compute_a_batch_in_one_part() -> None:
    text = "space: {compile: [off, default, cudagraphs], accumulation: [1, 2]}"
    space, _ = resolve(text, tunable=declared())
    assert space.legal({"compile": "cudagraphs", "accumulation": 1})
    assert space.legal({"compile": "default", "accumulation": 2})
    assert not space.legal({"compile": "cudagraphs", "accumulation": 2})
    fixed, _ = resolve("space: {compile: [off, max-autotune], width: auto}\n"
                       "fixed: {accumulation: 2}", tunable=declared())  # fmt: skip
    assert fixed.parameters["compile"].choices == ("off",)
    whole = WORKLOADS.get("translation").space(EIGHT)
    graphs = {**whole.default(), "compile": "reduce-overhead", "accumulation": 2}
    assert not whole.legal(graphs)


def test_a_parameter_without_its_condition_is_refused() -> None:
    with pytest.raises(ConfigError, match="parallelism is fixed at 'single'; tune parallelism"):
        resolve("space: {cpu_offload: auto, width: auto}\nfixed: {parallelism: single}",
                tunable=declared())  # fmt: skip


def test_a_strategy_without_room_leaves_its_parameter_out() -> None:
    space, resolution = resolve("space: {parallelism: auto, bucket_megabytes: auto, width: auto}",
                                tunable=declared(ONE))  # fmt: skip
    assert "bucket_megabytes" not in space.parameters
    assert "bucket_megabytes" in [item.parameter for item in resolution.dropped]


def test_what_is_named_can_be_fixed() -> None:
    on_gpu = declared()
    assert on_gpu.refuse_fixed("compile", "max-autotune") is None
    assert on_gpu.refuse_fixed("attention_backend", "flash") is None
    wrong = on_gpu.refuse_fixed("attention_backend", "flush")
    assert wrong is not None
    assert "must be one of auto, flash, cudnn" in wrong
    slow = declared(Hardware(4, 8 << 30)).refuse_fixed("compile", "cudagraphs")
    assert slow is not None
    assert "CUDA GPU" in slow
