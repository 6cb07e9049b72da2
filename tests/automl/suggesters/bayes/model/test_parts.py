"""Goals within a deadline, demanded probabilities, memory that is measured, surrogates of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP

from automl.core.goals import Goal
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition.feasibility import demanded, price
from automl.suggesters.bayes.candidates import Lattice
from automl.suggesters.bayes.design import Start
from automl.suggesters.bayes.model.latent_threshold import Bound
from search_spaces import Choice, Float, Int, Space

TIMED = Space(
    Float("rate", 0.0, 1.0, affects={"quality"}),
    Choice("layout", ["slow", "fast"], affects={"speed"}),
    Choice("kind", ["a", "b", "c"], affects={"speed"}),
)


def timed(number: int, params: dict) -> Trial:
    """Ten seconds of training; the layout decides how many steps fit."""
    pace = (0.1 if params["layout"] == "slow" else 0.02) * (1.5 if params["kind"] == "a" else 1.0)
    steps = [max(1, int(10 * share / pace)) for share in (0.2, 0.5, 1.0)]
    reports = tuple(
        ReportPoint(
            step, {"loss": 5 / (1 + 0.02 * step) + (params["rate"] - 0.4) ** 2}, step * pace
        )
        for step in steps
    )
    return Trial(number, params, TrialState.COMPLETED, dict(reports[-1].metrics), reports=reports)


def test_a_goal_within_a_deadline_is_composed():
    history = [timed(i, p) for i, p in enumerate(TIMED.sample(np.random.default_rng(0), 10))]
    suggester = BayesSuggester(TIMED, [Goal("loss", within=10.0)])
    data = suggester._collect(history)
    (belief,) = suggester.surrogates_.fit(data).goals
    assert len(belief.model.y) > len(history), "earlier reports are observations too"
    base = {"rate": 0.4, "kind": "b"}
    unit = TIMED.encode([{**base, "layout": "slow"}, {**base, "layout": "fast"}])
    mean = belief.model.predict(belief.encoder(unit))[0].mean(0)
    truth = [timed(0, {**base, "layout": layout}).metrics["loss"] for layout in ("slow", "fast")]
    assert mean[1] < mean[0]
    np.testing.assert_allclose(belief.transform.inverse(mean.numpy()), truth, rtol=0.2)


def test_demanded_probability_follows_failures():
    asked = [demanded(overrun) for overrun in (-4.0, -1.0, 0.0, 1.0, 10.0)]
    assert asked == sorted(asked)
    assert demanded(-1e5) == asked[0], "of very many trials too"
    assert 0.2 < asked[0] < asked[1] < asked[2] < asked[3] < asked[4] < 1.0


def test_a_failure_is_risked_where_more_is_gained_than_it_costs():
    space = Space(Float("x", 0.0, 1.0))
    x = np.linspace(0.02, 0.98, 12)
    trials = [failing(i, {"x": float(a)}, a > 0.5) for i, a in enumerate(x)]
    suggester = BayesSuggester(space, [Goal("loss")])
    known = suggester.surrogates_.feasibility(suggester._collect(trials))
    unit = np.linspace(0.1, 0.9, 33)[:, None]
    probability = known.log_probability(unit).exp()
    edge = int((probability - known.demanded + 0.1).abs().argmin())
    gains = torch.tensor([-8.0, -2.0, 3.0, 6.0], dtype=torch.float64)
    worth = torch.stack([known.weighed(gain.expand(len(unit)), unit) for gain in gains])
    assert probability[edge] < known.demanded < probability[0]
    assert (worth[:, 0] - gains - probability[0].log()).abs().max() < 1e-9, (
        "what is safe is worth its gain"
    )
    assert worth[0, edge] < worth[0, 0] - 300, "nothing is risked for little"
    assert worth[3, edge] > worth[1, 0], "but for much"
    assert (worth[:, -1] < worth[:, 0]).all()
    assert 0 < price(-1e5) < price(0.0) < price(2.0) < price(1e5) < np.inf


def failing(number: int, params: dict, fails: bool) -> Trial:
    state = TrialState.FAILED if fails else TrialState.COMPLETED
    return Trial(
        number, params, state, {} if fails else {"loss": -params["x"]}, "crashed" if fails else None
    )


def test_few_trials_fail_although_the_best_lies_at_the_edge():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(40):
        (params,) = suggester.suggest(history, [])
        history.append(failing(i, params, fails=params["x"] + params["y"] > 0.8))
    assert sum(t.failure is not None for t in history) <= 8
    assert min(t.metrics.get("loss", 0.0) for t in history) < -0.75


def test_failures_by_chance_do_not_stop_the_search():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    rng, suggester, history = np.random.default_rng(0), BayesSuggester(space, [Goal("loss")]), []
    for i in range(30):
        (params,) = suggester.suggest(history, [])
        history.append(failing(i, params, fails=rng.random() < 0.25))
    assert min(t.metrics.get("loss", 0.0) for t in history) < -0.9


def test_measured_memory_tells_what_fits():
    space = Space(Float("size", 0.0, 10.0), Float("other", 0.0, 1.0), Float("third", 0.0, 1.0))
    history = []
    for i, params in enumerate(space.sample(np.random.default_rng(1), 24)):
        peak = int(1e6 * 2 ** params["size"] * (1 + params["other"]))
        fits = peak < 2e8
        state = TrialState.COMPLETED if fits else TrialState.FAILED
        metrics = {"loss": -params["size"]} if fits else {}
        failure = None if fits else "out_of_memory"
        history.append(
            Trial(i, params, state, metrics, failure, peak_memory_bytes=peak if fits else None)
        )
    suggester = BayesSuggester(space, [Goal("loss")])
    feasibility = suggester.surrogates_.feasibility(suggester._collect(history))
    assert isinstance(feasibility.parts[0], Bound)
    test = space.sample(np.random.default_rng(2), 200)
    fits = np.array([1e6 * 2 ** p["size"] * (1 + p["other"]) < 2e8 for p in test])
    likely = feasibility.log_probability(space.encode(test)).exp().numpy() > 0.5
    assert (likely == fits).mean() > 0.9


def test_what_failed_is_known_to_need_more_than_the_limit():
    space = Space(Float("size", 0.0, 1.0), Choice("kind", ["plain", "greedy"]))
    rows = [
        ({"size": x, "kind": "plain"}, 10.0 ** (6 + x)) for x in np.linspace(0.0, 0.8, 9).tolist()
    ]
    history = [
        Trial(i, params, TrialState.COMPLETED, {"loss": 1.0}, peak_memory_bytes=int(peak))
        for i, (params, peak) in enumerate(rows)
    ]
    greedy = {"size": 0.2, "kind": "greedy"}
    history += [Trial(9, greedy, TrialState.FAILED, {}, "out_of_memory")]
    suggester = BayesSuggester(space, [Goal("loss")])
    feasibility = suggester.surrogates_.feasibility(suggester._collect(history))
    unit = space.encode([{"size": 0.22, "kind": "greedy"}, {"size": 0.22, "kind": "plain"}])
    greedy_fits, plain_fits = feasibility.log_probability(unit).exp().tolist()
    assert greedy_fits < 0.5 < 0.9 < plain_fits


def test_estimates_stand_in_for_what_could_not_be_measured():
    space = Space(Float("size", 0.0, 10.0))
    done = [
        Trial(
            i,
            {"size": float(i)},
            TrialState.COMPLETED,
            {"loss": 1.0, "estimated_memory_bytes": 50.0 * (i + 1)},
            peak_memory_bytes=100 * (i + 1),
        )
        for i in range(3)
    ]
    failed = Trial(
        3,
        {"size": 9.0},
        TrialState.FAILED,
        {"estimated_memory_bytes": 500.0},
        "out_of_memory",
        peak_memory_bytes=400,
    )
    data = BayesSuggester(space, [Goal("loss")])._collect([*done, failed])
    assert data.memory.tolist() == [100, 200, 300, 1000]


def test_trials_that_wait_for_more_steps_say_what_they_reported():
    space = Space(Float("x", 0.0, 1.0))
    report = ReportPoint(3, {"loss": 0.7}, 1.0)
    history = [
        Trial(0, {"x": 0.1}, TrialState.COMPLETED, {"loss": 0.5}),
        Trial(1, {"x": 0.2}, TrialState.PAUSED, {"loss": 0.7}, reports=(report,)),
        Trial(2, {"x": 0.3}, TrialState.INTERRUPTED),
        Trial(3, {"x": 0.4}, TrialState.RUNNING, {"loss": 0.1}, reports=(report,)),
    ]
    data = BayesSuggester(space, [Goal("loss")])._collect(history)
    assert data.losses[:, 0].tolist() == [0.5, 0.7]
    assert not data.failed.any()


def test_a_trial_is_read_again_when_it_is_another():
    space = Space(Float("x", 0.0, 1.0))
    suggester = BayesSuggester(space, [Goal("loss")])
    waiting = Trial(0, {"x": 0.5}, TrialState.RUNNING)
    assert len(suggester._collect([waiting])) == 0
    ended = replace(waiting, state=TrialState.COMPLETED, metrics={"loss": 2.0})
    assert suggester._collect([ended]).losses.tolist() == [[2.0]]
    assert suggester._collect([ended]).losses.tolist() == [[2.0]]
    failed = replace(ended, state=TrialState.FAILED, failure="crashed")
    assert suggester._collect([failed]).kinds.tolist() == ["crashed"]
    assert suggester._legal([ended, replace(ended, params={"x": 2.0})]) == [ended]


def test_a_surrogate_of_ones_own():
    space = Space(Float("x", 0.0, 1.0), Choice("c", ["a", "b"]))
    built = []

    def build(x: torch.Tensor, y: torch.Tensor) -> SingleTaskGP:
        built.append(len(y))
        return SingleTaskGP(x, y[:, None])

    def loss(params: dict) -> float:
        return (params["x"] - 0.3) ** 2 + (params["c"] == "b")

    points = space.sample(np.random.default_rng(0), 8)
    history = [Trial(i, p, TrialState.COMPLETED, {"loss": loss(p)}) for i, p in enumerate(points)]
    suggester = BayesSuggester(space, [Goal("loss")], surrogate=build)
    (params,) = suggester.suggest(history, [])
    assert built == [8]
    assert space.legal(params)
    assert suggester.diagnose(history)[0].count == 8


def test_the_start_covers_every_value():
    space = Space(Float("x", 0.0, 1.0), Choice("c", list("abcde")), Int("n", 1, 5))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(5):
        (params,) = suggester.suggest([], history)
        history.append(Trial(i, params, TrialState.RUNNING))
    assert len({t.params["c"] for t in history}) >= 4
    assert len({t.params["n"] for t in history}) >= 4
    assert len({int(t.params["x"] * 5) for t in history}) >= 4
    assert history[0].params == {"x": 0.5, "c": space.parameters["c"].middle(), "n": 3}


@pytest.mark.parametrize("text", ["a * b == 12", "a + b <= 3"])
def test_candidates_satisfy_the_constraints(text):
    space = Space(Int("a", 1, 64), Int("b", 1, 64), Float("x", 0.0, 1.0), constraints=[text])
    lattice, rng = Lattice(space), np.random.default_rng(0)
    points = lattice.everywhere(rng, 200)
    assert len(points) >= 50
    assert space.feasible(points).all()
    assert space.feasible(lattice.near(rng, points[:2], 80, (0.01, 0.3))).all()
    assert isinstance(Start(lattice, 5).middle(rng), dict)
