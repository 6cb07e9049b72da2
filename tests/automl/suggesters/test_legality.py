"""What is proposed for translation can be run: every suggester, parallelism strategies included."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from automl.core.goals import parse_goals
from automl.suggesters import SUGGESTERS
from search_spaces import Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from workers.parallel import STRATEGIES, num_ranks, requirements
from workers.parallel.mesh import Mesh
from workers.protocol import Params
from workers.workloads.translation import Translation

Judge = Callable[[Params], None]


def translation(cores: int) -> Space:
    hardware = Hardware(
        cores, 2**34, gpus=(), precisions=("fp32", "bf16"), backends=("gloo",), host="h"
    )
    return Translation.space(hardware)


def judge(space: Space, cores: int) -> Judge:
    """Checks by the code that runs a configuration: the strategy's and the model's own rules."""
    needs = requirements()
    rules = {
        name: [Expression(text) for text in need["constraints"]] for name, need in needs.items()
    }

    def check(params: Params) -> None:
        whole = {**Translation.defaults, **params}
        name, ranks = str(params["parallelism"]), num_ranks(params, {})
        assert ranks <= cores
        assert all(rule.evaluate({**whole, "ranks": ranks}) for rule in rules[name] if ranks > 1), (
            params
        )
        Mesh(0, ranks, **STRATEGIES.get(name).degrees(ranks, params))
        assert name != "embedding_server" or not whole["tied_embeddings"], params
        Translation.check({}, {name: whole[name] for name in Translation.defaults})
        space.accept(params)

    return check


def all_legal(found: list[Params], space: Space, cores: int) -> None:
    check = judge(space, cores)
    for params in found:
        check(params)
    assert len({str(params["parallelism"]) for params in found}) > 1, "nothing is spread over ranks"


@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize("name", ["random", "sobol"])
def test_what_fills_the_space_is_legal(name: str, cores: int) -> None:
    space = translation(cores)
    found = SUGGESTERS.get(name)(space, parse_goals("minimize loss")).suggest([], [], 300)
    assert len(found) == 300
    all_legal(found, space, cores)
