"""Ablations: a flipped rule is compared with the default suggester, run by run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from automl.suggesters.bayes.policy import ALL_RULES
from benchmarks.suggesters import ablate, predict, problems
from benchmarks.suggesters.contestants import RULES, flipped, make, policy_of
from benchmarks.suggesters.fingerprint import fingerprint


def row(rule: str, problem: str, seed: int, regret: float, failed: int = 0, code: str = "a"):
    return {
        "problem": problem,
        "suggester": flipped(rule),
        "seed": seed,
        "code": code,
        "at": [25, 50],
        "regret": [2 * regret, regret],
        "failed": [0, failed],
    }


def test_an_effect_is_the_mean_of_paired_differences_over_problems() -> None:
    base = ablate.by_run([row("", "p", 0, 0.1), row("", "p", 1, 0.5), row("", "q", 0, 0.2)])
    rows = [row("r", "p", 0, 0.2, 5), row("r", "p", 1, 0.8), row("r", "q", 0, 0.2)]
    found = ablate.effect("r", rows, base, 50)
    assert found is not None
    assert found.regret == pytest.approx((0.2 + 0.0) / 2)  # of p 0.1 and 0.3, of q nothing
    assert found.error == pytest.approx(math.sqrt(0.02 / 2) / 2)
    assert found.failed == pytest.approx(0.05 / 2)
    assert (found.num_problems, found.num_seeds) == (2, 1)
    assert ablate.effect("r", rows, base, 25).regret == pytest.approx(2 * found.regret)


def test_rows_of_other_code_and_without_a_partner_do_not_count() -> None:
    base = ablate.by_run([row("", "p", 0, 0.1)])
    rows = [row("r", "p", 0, 0.2, code="b"), row("r", "q", 0, 0.2), row("s", "p", 0, 0.2)]
    assert ablate.effect("r", rows, base, 50) is None


def test_a_rule_without_an_effect_beyond_its_error_is_told() -> None:
    base = ablate.by_run(row("", "p", seed, 0.1) for seed in range(3))
    helps = ablate.effect("trend", [row("trend", "p", s, 0.4) for s in range(3)], base, 50)
    harms = ablate.effect("pair_kernel", [row("pair_kernel", "p", 0, 0.05)], base, 50)
    assert helps is not None
    assert harms is not None
    found = {claim.name: claim.holds for claim in ablate.claims([helps, harms])}
    assert found["trend helps"]
    assert not found["pair_kernel helps"]
    assert found["every rule was measured"] is None


def test_every_rule_can_be_flipped_and_acts_on_known_problems() -> None:
    for rule in RULES:
        policy = policy_of(flipped(rule))
        assert [name for name in RULES if getattr(policy, name) != getattr(ALL_RULES, name)] == [
            rule
        ]
        assert set(ablate.where(rule)) <= set(problems.names())
    assert policy_of("bayes") == ALL_RULES
    assert policy_of("bayes~trend+pair_kernel").trend is not ALL_RULES.trend
    assert fingerprint("bayes~trend") == fingerprint("bayes")
    assert set(predict.MODEL_RULES) <= set(RULES)
    assert set(ablate.WHERE) <= set(RULES)


def test_a_flipped_contestant_proposes_legal_configurations() -> None:
    problem = problems.load("noisy_mixed")
    found = make(flipped("middle_first"), problem, 0).suggest([], [])
    assert found != make("bayes", problem, 0).suggest([], [])
    problem.space.check(found[0])


def test_histories_do_not_depend_on_the_variant_and_hold_successes_only() -> None:
    problem = problems.load("failing_combinations")
    first, second = (predict.trials_of(problem, 12, 1) for _ in range(2))
    assert [t.params for t in first[0]] == [t.params for t in second[0]]
    assert len(first[0]) == 12
    assert all(trial.failure is None for trial in (*first[0], *first[1]))
    assert predict.trials_of(problem, 12, 2)[0][0].params != first[0][0].params


def test_more_trials_predict_better() -> None:
    few, many = (predict.measured("", "uneven_scales", size, 0) for size in (12, 45))
    assert many["log_density"] > few["log_density"] + 0.1
    assert many["rank_correlation"] > few["rank_correlation"]


def test_differences_of_predictions_are_paired() -> None:
    def prediction(rule: str, problem: str, size: int, density: float):
        values = dict.fromkeys(predict.MEASURES, density)
        key = {"problem": problem, "suggester": flipped(rule), "seed": 0, "code": "a", "size": size}
        return {**key, **values}

    rows = [
        prediction("", "p", 12, 1.0),
        prediction("", "p", 25, 2.0),
        prediction("trend", "p", 12, 0.5),
        prediction("trend", "p", 25, 2.5),
        prediction("trend", "q", 12, 9.0),  # without a partner
    ]
    found = predict.differences("trend", rows)
    np.testing.assert_allclose(found["log_density"], [0.0])
    missing = predict.claims({"trend": found})[0]
    assert missing.holds is None
