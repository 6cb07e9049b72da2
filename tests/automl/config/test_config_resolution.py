"""What is tuned where a configuration names some parameters, and the hardware cannot run others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.config.loading import apply
from automl.config.resolution import Resolution, Tunable, split_constraints
from automl.config.source import WrittenConfig
from automl.errors import ConfigError
from search_spaces import Choice, Float, Int, Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Gpu, Hardware
from workers.workloads import WORKLOADS

PARAMETERS = (
    Choice("precision", ["fp32", "bf16"], default="bf16", affects={"speed", "memory"}),
    Choice("parallelism", ["single", "ddp"], default="single"),
    Choice("ranks", [2, 4], default=2, when={"parallelism": "ddp"}),
    Float("learning_rate", 1e-5, 1e-1, log=True, default=1e-3, affects={"quality"}),
    Int("width", 32, 512, default=128),
    Choice("num_heads", [1, 2, 4, 8], default=4, ordered=True),
    Choice("optimizer", ["sgd", "adam"], default="adam"),
    Float("momentum", 0, 0.99, default=0.9, when={"optimizer": "sgd"}),
)
TOY = Tunable(
    lambda: Hardware(2, 8 << 30),
    "toy",
    {parameter.name: parameter for parameter in PARAMETERS},
    (Expression("width % num_heads == 0"),),
    {"max_updates": 100},
    {
        "precision": {"fp16": "this machine has no GPU"},
        "bridge": {"nvlink": "this machine has no GPU"},
    },
)


def resolve(text: str, *overrides: str, tunable: Tunable = TOY) -> tuple[Space, Resolution]:
    source = WrittenConfig.of_bytes(text.encode(), "f.yaml")
    apply(source, overrides)
    settings = source.settings()
    resolution = Resolution(source, tunable, settings["fixed"])
    space = resolution.space(settings["space"])
    source.raise_any()
    assert space is not None
    return space, resolution


@pytest.mark.parametrize("text", ["space: auto", "name: x"])
def test_without_a_space_everything_is_tuned_and_what_is_left_out_is_told(text: str) -> None:
    space, resolution = resolve(text)
    assert list(space.parameters) == [parameter.name for parameter in PARAMETERS]
    assert [(d.parameter, d.value, d.reason) for d in resolution.dropped] == [
        ("precision", "fp16", "this machine has no GPU")
    ]
    assert [str(c) for c in space.constraints] == ["width % num_heads == 0"]


def test_exactly_what_is_named_is_tuned_and_the_rest_is_fixed_at_its_default() -> None:
    space, resolution = resolve("space: {precision: auto, learning_rate: {high: 1}}")
    assert repr(space.parameters["precision"]) == repr(PARAMETERS[0])
    rate = space.parameters["learning_rate"]
    assert isinstance(rate, Float)
    assert (rate.low, rate.high, rate.log, rate.default, rate.affects) == (
        1e-5,
        1,
        True,
        1e-3,
        frozenset({"quality"}),
    )
    assert len(space.parameters) == 2
    assert resolution.untuned() == {
        "parallelism": "single",
        "width": 128,
        "num_heads": 4,
        "optimizer": "adam",
    }


def test_what_is_fixed_is_not_tuned_by_auto() -> None:
    space, resolution = resolve("fixed: {learning_rate: 0.5}")
    assert "learning_rate" not in space.parameters
    assert resolution.untuned()["learning_rate"] == 0.5


def test_choices_that_the_hardware_cannot_run_are_dropped_with_the_reason() -> None:
    space, resolution = resolve("space: {precision: [fp16, fp32], bridge: auto, width: auto}")
    assert list(space.parameters) == ["precision", "width"]
    assert [(d.parameter, d.value) for d in resolution.dropped] == [
        ("precision", "fp16"),
        ("bridge", None),
    ]
    assert space.default() == {"precision": "fp32", "width": 128}


def test_a_choice_that_runs_slowly_is_tried_only_where_it_is_asked_for() -> None:
    slow = Hardware(2, 8 << 30, slow={"fp16": "emulated"})
    tunable = Tunable(
        lambda: slow, "toy", TOY.parameters, left_out={"precision": {"fp16": "emulated"}}
    )
    space, resolution = resolve("space: {precision: auto}", tunable=tunable)
    assert (space.size, [d.value for d in resolution.dropped]) == (2, ["fp16"])
    space, resolution = resolve("space: {precision: [fp16, fp32]}", tunable=tunable)
    assert (space.size, resolution.dropped) == (2, [])


def test_a_constraint_sees_the_value_of_what_is_not_tuned() -> None:
    space, _ = resolve("space: {width: auto}\nfixed: {num_heads: 8}")
    assert [str(c) for c in space.constraints] == ["width % 8 == 0"]
    assert not space.legal({"width": 36})


def test_a_constraint_that_nothing_can_break_any_more_is_left_out() -> None:
    assert resolve("space: {width: [64, 128]}")[0].constraints == ()
    assert resolve("space: {width: [64, 128], num_heads: auto}")[0].constraints == ()


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ("space: {ranks: auto}\nfixed: {parallelism: ddp}", {"ranks"}),
        ("space: {ranks: auto, parallelism: auto}", {"ranks", "parallelism"}),
        ("space: {momentum: auto, optimizer: [adam], width: auto}", {"optimizer", "width"}),
    ],
)
def test_a_condition_holds_of_a_fixed_parent_too(text: str, active: set[str]) -> None:
    assert set(resolve(text)[0].parameters) == active


def test_a_condition_is_inherited_from_a_parent_that_is_not_tuned() -> None:
    child = Int("buckets", 1, 8, default=2, when={"ranks": 2})
    tunable = Tunable(TOY.detected, "toy", {**TOY.parameters, "buckets": child})
    space, _ = resolve("space: {buckets: auto, parallelism: auto}", tunable=tunable)
    assert space.parameters["buckets"].when == {"parallelism": ("ddp",)}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("width: {low: 64, high: 1e3}", Int("width", 64, 1000, default=128)),
        ("width: {low: 256}", Int("width", 256, 512, default=256)),
        ("width: [64, 96]", Choice("width", [64, 96], ordered=True, default=96)),
        ("num_heads: {low: 1, high: 6}", Int("num_heads", 1, 6, default=4)),
        ("num_heads: {low: 1, high: 6, log: true}", Int("num_heads", 1, 6, log=True, default=4)),
        ("num_heads: [2, 16]", Choice("num_heads", [2, 16], ordered=True, default=2)),
        ("optimizer: {default: sgd}", Choice("optimizer", ["sgd", "adam"], default="sgd")),
        ("width: {affects: speed}", Int("width", 32, 512, default=128, affects={"speed"})),
        (
            "learning_rate: [1e-3, 1]",
            Choice("learning_rate", [1e-3, 1], ordered=True, default=1e-3, affects="quality"),
        ),
    ],
)
def test_an_entry_fills_its_gaps_from_the_declaration(
    entry: str, expected: Float | Int | Choice
) -> None:
    assert resolve(f"space: {{{entry}}}")[0].parameters[expected.name] == expected


def test_a_space_that_the_constraints_leave_empty_is_refused() -> None:
    with pytest.raises(ConfigError, match="no configuration satisfies the constraints"):
        resolve("space: {num_heads: [3, 5]}")


def test_an_override_narrows_an_entry() -> None:
    space, _ = resolve(
        "space: {learning_rate: auto}",
        "space.learning_rate.low=1e-4",
        "space.precision=[fp32,bf16]",
    )
    assert repr(space.parameters["learning_rate"]).startswith(
        "Float('learning_rate', 0.0001, 0.1, log=True"
    )
    assert "precision" in space.parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "space: {precison: auto}",
            "f.yaml:1: space.precison: unknown knob; did you mean 'precision'?",
        ),
        (
            "space:\n  widht: [1]",
            "f.yaml:2: space.widht: unknown parameter of workload toy; did you mean 'width'?",
        ),
        (
            "space: {width: {low: 9, high: 3}}",
            "low of 'width' must not be above high, got low=9, high=3",
        ),
        ("space: {learning_rate: {low: 0}}", "must be above 0 on a log scale"),
        ("space: {width: 3}", "auto, a list of choices or {low, high"),
        ("space: {width: {low: 1.5}}", "low of 'width' must be an integer"),
        ("space: {width: {low: true}}", "space.width.low: a number is needed, got true"),
        ("space: {width: {log: no}}", "space.width.log: true or false is needed, got 'no'"),
        ("space: {width: {high: '64'}}", "space.width.high: a number is needed, got '64'"),
        ("space: {width: {hihg: 64}}", "space.width.hihg: unknown key; did you mean 'high'?"),
        ("space: {width: {type: real}}", "'float', 'int' or 'choice' is needed, got 'real'"),
        ("space: {width: {affects: sped}}", "did you mean 'speed'?"),
        ("space: {width: {choices: [1], low: 3}}", "is of type choice, which has no 'low'"),
        ("space: {width: []}", "and there must be one; got []"),
        ("space: {width: [[1]]}", "each choice of width must be a whole number, got [1]"),
        ("space: {precision: [fp17]}", "must be one of fp32, bf16, fp16, got 'fp17'"),
        (
            "space: {precision: [fp16]}",
            "none of the choices of precision can run on this hardware (fp16: this machine",
        ),
        ("space: {width: [a]}", "each choice of width must be a whole number, got 'a'"),
        (
            "space: {ranks: auto}",
            "needs parallelism to be 'ddp', and parallelism is fixed at 'single'",
        ),
        (
            "space: {width: {when: {optimiser: sgd}}}",
            "unknown parameter 'optimiser'; did you mean 'optimizer'?",
        ),
        ("space: {width: {default: 1}}", "the default of width must lie in [32, 512], got 1"),
        (
            "space: {width: auto}\nfixed: {width: 3}",
            "f.yaml:2: fixed.width: width is also under space",
        ),
        ("space: {}", "auto, or a mapping"),
        ("space:", "auto, or a mapping"),
        ("space: {bridge: auto}", "nothing is left to tune"),
    ],
)
def test_a_wrong_entry_is_told_with_its_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(text)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_all_wrong_entries_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(
            "space:\n  a: auto\n  width: {low: 9, high: 3}\n  precision: [fp17]\n"
            "  ranks: x\nseed: -1\n"
        )
    assert len(str(caught.value).splitlines()) == 6


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max_updates", 5, None),
        ("width", 4096, None),
        ("precision", "fp32", None),
        ("precision", "fp16", "this hardware cannot run precision 'fp16': this machine has no GPU"),
        ("precision", "fp17", "must be one of fp32, bf16, got 'fp17'"),
        ("width", "big", "must be a number, got 'big'"),
        ("max_update", 5, "unknown option of workload toy; did you mean 'max_updates'?"),
    ],
)
def test_fixed_values_are_checked_against_the_declaration(
    name: str, value: object, reason: str | None
) -> None:
    assert TOY.refuse_fixed(name, value) == reason


def test_constraints_on_metrics_and_between_parameters_are_told_apart() -> None:
    ours = ["width * num_heads <= 512", "width <= loss", "width + widht <= 1", "width is None"]
    others = ["peak_memory_bytes <= 8e9", "nonsense", "width loss <= 3", "acc/width >= 0.5"]
    metrics, expressions = split_constraints([*others, *ours], ["width", "num_heads"])
    assert expressions == ours
    assert metrics == others


def test_choices_that_what_is_fixed_rules_out_are_dropped_with_the_reason() -> None:
    rule = Expression("parallelism != 'ddp' or width >= 64")
    tunable = replace(TOY, constraints=(rule,), left_out={})
    space, resolution = resolve(
        "space: {parallelism: auto, ranks: auto}\nfixed: {width: 32}", tunable=tunable
    )
    assert space.parameters["parallelism"].choices == ("single",)
    assert [(d.parameter, d.value) for d in resolution.dropped] == [
        ("parallelism", "ddp"),
        ("ranks", None),
    ]
    assert resolution.dropped[0].reason == "width 32, and parallelism != 'ddp' or width >= 64"
    space, resolution = resolve("space: {parallelism: auto}\nfixed: {width: 64}", tunable=tunable)
    assert space.parameters["parallelism"].choices == ("single", "ddp")
    assert not resolution.dropped


@pytest.mark.parametrize(
    "name",
    ["backend", "tensor_degree", "momentum"],
)
def test_options_of_the_trainer_and_the_strategies_can_be_fixed(name: str) -> None:
    hardware = Hardware(2, 8 << 30)
    trained, other = (
        Tunable.of(WORKLOADS.get(one), lambda: hardware)
        for one in ("translation", "graph_embedding")
    )
    assert trained.refuse_fixed(name, 2) is None
    assert "unknown option" in str(other.refuse_fixed(name, 2))


# Parameters and values that a configuration must name before they are tuned.
GPU = Gpu("H100", 80 << 30, (9, 0), True)
EIGHT = Hardware(
    64, 1 << 38, (GPU,) * 8, ("fp32", "tf32", "bf16", "fp16"), ("gloo", "nccl"), rpc=False
)


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


def test_what_is_named_can_be_fixed() -> None:
    on_gpu = declared()
    assert on_gpu.refuse_fixed("compile", "max-autotune") is None
    assert on_gpu.refuse_fixed("attention_backend", "flash") is None
    wrong = on_gpu.refuse_fixed("attention_backend", "flush")
    assert "must be one of auto, flash, cudnn" in str(wrong)
    slow = declared(Hardware(4, 8 << 30)).refuse_fixed("compile", "cudagraphs")
    assert "CUDA GPU" in str(slow)
