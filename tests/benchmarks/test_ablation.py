"""Ablations: a flipped rule is compared with the default suggester, run by run."""

from __future__ import annotations

import math

import pytest

from automl.suggesters.bayes.suggester import ALL_RULES
from benchmarks.suggesters import ablate, problems
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
    helps = ablate.effect("draws", [row("draws", "p", s, 0.4) for s in range(3)], base, 50)
    harms = ablate.effect("smoothed", [row("smoothed", "p", 0, 0.05)], base, 50)
    assert helps is not None
    assert harms is not None
    found = {claim.name: claim.holds for claim in ablate.claims([helps, harms])}
    assert found["draws helps"]
    assert not found["smoothed helps"]
    assert found["every rule was measured"] is None


def test_every_rule_can_be_flipped_and_acts_on_known_problems() -> None:
    for rule in RULES:
        policy = policy_of(flipped(rule))
        assert [name for name in RULES if getattr(policy, name) != getattr(ALL_RULES, name)] == [
            rule
        ]
        assert set(ablate.where(rule)) <= set(problems.names())
    assert policy_of("bayes") == ALL_RULES
    assert policy_of("bayes~draws+smoothed").draws is not ALL_RULES.draws
    assert fingerprint("bayes~draws") == fingerprint("bayes")
    assert set(ablate.WHERE) <= set(RULES)


def test_a_flipped_contestant_proposes_legal_configurations() -> None:
    problem = problems.load("noisy_mixed")
    problem.space.check(make(flipped("draws"), problem, 0).suggest([], [])[0])
