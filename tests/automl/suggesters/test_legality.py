"""What is proposed for translation can be run: every suggester, parallelism strategies included."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from automl.core.goals import parse_goals
from automl.core.trial import Trial, TrialState
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.domain import Domain
from search_spaces import Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from workers.parallel import STRATEGIES, num_ranks, requirements
from workers.parallel.mesh import Mesh
from workers.protocol import Params
from workers.workloads.translation import Translation, options

Judge = Callable[[Params], None]
CORES = (2, 8)


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
        whole = {**options.DEFAULTS, **params}
        name, ranks = str(params["parallelism"]), num_ranks(params, {})
        assert ranks <= cores
        assert all(rule.evaluate({**whole, "ranks": ranks}) for rule in rules[name] if ranks > 1), (
            params
        )
        Mesh(0, ranks, **STRATEGIES.get(name).degrees(ranks, params))
        assert name != "embedding_server" or not whole["tied_embeddings"], params
        options.check({key: value for key, value in whole.items() if key in options.DEFAULTS})
        space.accept(params)

    return check


def make(name: str, space: Space, seed: int = 0) -> Suggester:
    return SUGGESTERS.get(name)(space, parse_goals("minimize loss"), seed=seed)


def finished(space: Space, count: int) -> list[Trial]:
    """Trials of which every third ran out of memory."""
    trials = []
    for number, params in enumerate(space.sample(np.random.default_rng(0), count)):
        if number % 3 == 2:
            trials.append(Trial(number, params, TrialState.FAILED, failure="out_of_memory"))
        else:
            loss = float(np.nansum(space.encode([params])[0]))
            trials.append(Trial(number, params, TrialState.COMPLETED, {"loss": loss}))
    return trials


def all_legal(found: list[Params], space: Space, cores: int) -> None:
    check = judge(space, cores)
    for params in found:
        check(params)
    assert len({str(params["parallelism"]) for params in found}) > 1, "nothing is spread over ranks"


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("name", ["random", "sobol"])
def test_ten_thousand_that_fill_the_space(name: str, cores: int) -> None:
    space = translation(cores)
    found = [p for seed in range(20) for p in make(name, space, seed).suggest([], [], 500)]
    assert len(found) == 10_000
    all_legal(found, space, cores)


@pytest.mark.parametrize("cores", CORES)
def test_ten_thousand_candidates_of_bayes(cores: int) -> None:
    """All among which its search takes the best: everywhere, near good ones and crossed."""
    space = translation(cores)
    found: list[Params] = []
    for batch in candidates(space):
        found += space.decode(batch)
        if len(found) >= 10_000:
            break
    all_legal(found, space, cores)


def candidates(space: Space) -> Iterator[np.ndarray]:
    sampler, rng = CandidateSampler(Domain(space)), np.random.default_rng(0)
    best = space.encode([trial.params for trial in finished(space, 10)])
    for _ in range(200):
        yield sampler.everywhere(rng, 200)
        yield sampler.near(rng, best, 100, (0.003, 0.3))
        yield sampler.crossed(rng, best, 50)
