"""The promises of every parallelism strategy.

A plugin runs them with `pytest --automl-conformance`: each strategy of an entry point trains the
translation workload on its smallest number of ranks, in processes of this machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from automl.conformance.workloads import run_each
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.memory.estimate import estimate
from workers.parallel import STRATEGIES
from workers.parallel.base import Strategy
from workers.protocol import Assignment, Ending
from workers.runtime.processes import run_gang
from workers.training import checkpoint
from workers.workloads import WORKLOADS

TRANSLATION = WORKLOADS.get("translation")
FIXED = {
    **TRANSLATION.smallest["fixed"],
    "num_layers": 4,
    "num_heads": 4,
    "dropout": 0.0,
    "optimizer": "sgd",
    "max_updates": 6,
}


@pytest.fixture(params=STRATEGIES.installed())
def name(request: pytest.FixtureRequest) -> str:
    """The name of the strategy that is tested."""
    return str(request.param)


def train(folder: Path, each: Sequence[Mapping[str, Any]], ranks: int) -> list[Any]:
    """The final parameters of a training with each of these configurations, by name."""
    of = {"workload": TRANSLATION.name, "data": dict(TRANSLATION.smallest["data"]), "fixed": FIXED}
    fixed = {"each": list(each), "of": of}
    one = Assignment("s", 0, 1, {}, None, str(folder), fixed=fixed, num_ranks=ranks)
    outcome = run_gang(one, lambda report: None, lambda: None, run_each)
    assert outcome.ending is Ending.COMPLETED, (outcome.message, outcome.details)
    found = [checkpoint.load(folder / str(index)) for index in range(len(each))]
    return [one.model for one in found if one is not None]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The final parameters under `single`."""
    (found,) = train(tmp_path_factory.mktemp("alone"), [{"parallelism": "single"}], 1)
    return found


def variants(name: str) -> Iterator[dict[str, Any]]:
    """A trial with the strategy's defaults, and one for each other value of its options."""
    yield {"parallelism": name}
    for option in STRATEGIES.get(name).options:
        values = (*option.choices, *option.on_request) or (
            (True, False) if isinstance(option.default, bool) else ()
        )
        for value in values:
            if value != option.default:
                yield {"parallelism": name, option.name: value}


def test_it_declares_its_needs(name: str) -> None:
    """Its degrees multiply to the ranks, and the batch is shared out among some of them."""
    kind = STRATEGIES.get(name)
    assert issubclass(kind, Strategy)
    assert isinstance(kind.needs, StrategyNeeds)
    assert kind.needs.summary
    for ranks in {kind.needs.min_ranks, kind.needs.max_ranks or 4 * kind.needs.min_ranks}:
        assert math.prod(kind.degrees(ranks, {}).values()) == ranks


def test_its_weights_are_those_of_single(name: str, alone: Any, tmp_path: Path) -> None:
    """It computes the same function, with each value of its options and in parts of a batch."""
    ranks = max(2, STRATEGIES.get(name).needs.min_ranks)
    each = [*variants(name), {"parallelism": name, "accumulation": 2}]
    all_found = train(tmp_path, [{**one, "ranks": ranks} for one in each], ranks)
    for one, found in zip(each, all_found, strict=True):
        assert found.keys() == alone.keys(), one
        for key, tensor in found.items():
            torch.testing.assert_close(
                tensor, alone[key], rtol=1e-4, atol=1e-5, msg=f"{one}: {key}"
            )


def test_its_memory_is_estimated(name: str) -> None:
    """A rank needs something, and no more than the whole training in one process."""
    ranks = max(2, STRATEGIES.get(name).needs.min_ranks)
    peaks = []
    for count, strategy in ((ranks, name), (1, "single")):
        workload = TRANSLATION({"parallelism": strategy}, TRANSLATION.smallest["data"], FIXED)
        peaks.append(estimate(workload, count, "cuda").peak_bytes)  # type: ignore[arg-type]
    assert 0 < peaks[0] <= 1.1 * peaks[1]
