"""Every parallelism strategy computes the function of `single`, on real gloo ranks.

The trials follow from the strategy classes: a new strategy is tested without a change here.
"""

from __future__ import annotations

import pytest
import torch
from strategies import run_all
from toy import Toy

from search_spaces.hardware import Hardware
from workers.memory import estimate
from workers.parallel import STRATEGIES
from workers.training import checkpoint
from workers.workloads import WORKLOADS

COMMON = {
    "max_updates": 5,
    "evaluate_updates": 1,
    "optimizer": "sgd",
    "learning_rate": 0.3,
    "rows": 7,
}
BASES = [{}, {"tied": True}, {"precision": "bf16"}, {"accumulation": 2, "precision": "fp64"}]
TOLERANCE = {"bf16": 2e-2, "fp64": 1e-12}
ROWS = {"sparse_gradients": True, "max_updates": 4, "evaluate_updates": 1, "vocabulary": 400}
SPARSE = [
    {**ROWS, "parallelism": "single", "folder": "sparse"},
    {**ROWS, "parallelism": "ddp", "folder": "sparse-ddp"},
    {**ROWS, "parallelism": "ddp", "accumulation": 2, "precision": "bf16", "folder": "rounded"},
    {**ROWS, "parallelism": "fsdp", "folder": "refused"},
]
PLUGIN = '''
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.parallel.strategies.ddp import DDP

__all__ = ["Mirror"]


class Mirror(DDP):
    """A strategy in one file."""

    needs = StrategyNeeds("a mirror of ddp", backends=("gloo",))
'''


def names(ranks):
    """The strategies whose smallest number of ranks is this one."""
    found = [name for name in STRATEGIES.names() if name != "single"]
    return [name for name in found if STRATEGIES.get(name).needs.min_ranks == ranks]


def variants(name):
    """A trial with the strategy's defaults, and one for each other value of its options."""
    yield {"parallelism": name}
    for option in STRATEGIES.get(name).options:
        values = (*option.choices, *option.on_request) or (
            (True, False) if isinstance(option.default, bool) else ()
        )
        for value in values:
            if value != option.default:
                yield {"parallelism": name, option.name: value}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The curves and final weights of `single`, by its settings."""
    folder = tmp_path_factory.mktemp("alone")
    results = run_all(folder, [{**COMMON, **base} for base in BASES], ranks=1)
    weights = [checkpoint.load(folder / str(index)).model for index in range(len(BASES))]
    return {
        str(sorted(base.items())): (result, found)
        for base, result, found in zip(BASES, results, weights, strict=True)
    }


def check(alone, base, result, folder, tolerance=1e-5):
    reference, weights = alone[str(sorted(base.items()))]
    assert result["failure"] is None, f"{result['message']}\n{result['traceback']}"
    found = checkpoint.load(folder).model
    assert result["train_loss"] == pytest.approx(reference["train_loss"], rel=tolerance)
    assert result["loss"] == pytest.approx(reference["loss"], rel=tolerance)
    assert found.keys() == weights.keys()
    if tolerance <= 1e-5:
        for name, tensor in weights.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


def check_all(alone, folder, trials, results):
    for index, (trial, result) in enumerate(zip(trials, results, strict=True)):
        base = {key: trial[key] for key in ("tied", "precision", "accumulation") if key in trial}
        tolerance = TOLERANCE.get(base.get("precision"), 1e-5)
        check(alone, base, result, folder / str(index), tolerance)


@pytest.fixture(scope="module", autouse=True)
def mirror(tmp_path_factory):
    """A strategy of an installed package."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "mirror_strategy.py").write_text(PLUGIN)
    (folder / "mirror-1.dist-info").mkdir()
    (folder / "mirror-1.dist-info" / "entry_points.txt").write_text(
        "[automl.strategies]\nmirror = mirror_strategy:Mirror\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Trials of every strategy and knob in one gang, and a run that changes its strategy."""
    built_in = [name for name in names(2) if name != "mirror"]
    trials = [trial for name in names(2) for trial in variants(name)]
    trials += [{"parallelism": name, **base} for name in built_in for base in BASES[2:]]
    trials += [
        {"parallelism": "pipeline", "tied": True},
        {"parallelism": "ddp", "bucket_megabytes": 1},
        {"parallelism": "fsdp", "cpu_offload": True},
        {"parallelism": "fsdp", "precision": "bf16", "reduction_precision": "half"},
    ]
    relay = ["single", *built_in, "single"]
    given = {"evaluate_updates": 1, "dropout": 0.0, "optimizer": "adamw", "folder": "relay"}
    turns = [
        {**given, "parallelism": name, "max_updates": 2 * turn, "resume": turn > 1}
        for turn, name in enumerate(relay, 1)
    ]
    turns.append({**given, "max_updates": 2 * len(relay), "folder": "whole"})
    folder = tmp_path_factory.mktemp("two")
    results = run_all(folder, [*({**COMMON, **trial} for trial in trials), *turns, *SPARSE], 2)
    rest = results[len(trials) :]
    return folder, trials, results[: len(trials)], rest[: len(turns)], rest[len(turns) :]


def test_losses_and_weights_are_those_of_single(two_ranks, alone):
    """In fp64, which has no visible rounding, the curves are equal to the last digits."""
    folder, trials, results, *_ = two_ranks
    check_all(alone, folder, trials, results)


def test_a_run_continues_under_any_other_strategy(two_ranks):
    """A run that changes its strategy every two updates is the run of `single`."""
    *turns, whole = two_ranks[3]
    for result in (*turns, whole):
        assert result["failure"] is None, f"{result['message']}\n{result['traceback']}"
    joined = {step: loss for result in turns for step, loss in result["train_loss"].items()}
    assert joined == pytest.approx(whole["train_loss"], rel=1e-5)
    assert len(joined) == 2 * len(turns)


def test_two_ranks_update_the_embeddings_that_one_does(two_ranks):
    folder, *_, (alone, ranks, rounded, refused) = two_ranks
    assert ranks["failure"] is None, ranks
    assert ranks["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert rounded["loss"] == pytest.approx(alone["loss"], rel=2e-2)
    assert "parallelism single or ddp; got adamw and fsdp" in refused["message"]
    first, second = (checkpoint.load(folder / name).model for name in ("sparse", "sparse-ddp"))
    name = "embedding.weight"
    torch.testing.assert_close(second[name], first[name], rtol=1e-4, atol=1e-6)


def test_on_four_ranks_too(tmp_path, alone):
    trials = [{"parallelism": name} for name in (*names(4), "pipeline")]
    trials.append({"parallelism": "data_pipeline", "schedule": "interleaved1f1b"})
    check_all(alone, tmp_path, trials, run_all(tmp_path, [{**COMMON, **t} for t in trials], 4))


def test_a_strategy_is_one_file():
    """A new strategy is proposed and estimated, without a change anywhere else."""
    hardware = Hardware(2, 2**33, precisions=("fp32",), backends=("gloo",))
    for workload in ("translation", "image_classification", "sentiment"):
        assert "mirror" in WORKLOADS.get(workload).space(hardware).parameters["parallelism"].choices
    sizes = {"width": 64, "vocabulary": 500, "rows": 64}
    mirrored, ddp, single = (
        estimate(Toy({**sizes, "parallelism": name}, {}, {}), ranks, "cuda").peak_bytes
        for name, ranks in (("mirror", 2), ("ddp", 2), ("single", 1))
    )
    assert mirrored == ddp < single
