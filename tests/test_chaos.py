"""The quick half of `tests/stress/chaos.py`: each attack is a test."""

from __future__ import annotations

import pytest
from attacks.frame import Attack, Observed, attack, attacks, conduct
from chaos import claims

from benchmarks.common.bounds import conclude

QUICK = [made for made in attacks() if made.quick]


@pytest.mark.parametrize("made", QUICK, ids=lambda made: made.name)
def test_an_attack_breaks_nothing(made: Attack) -> None:
    observed = conduct(made)
    assert observed.held, observed.text


def test_a_run_with_a_broken_attack_or_none_is_not_held() -> None:
    @attack("nothing")
    def harmless(folder: object) -> str:
        return ""

    held = Observed(harmless, True, "", 0.0)
    broken = Observed(harmless, False, "lost", 0.0)
    assert conclude(claims([held])) == 0
    assert conclude(claims([held, broken])) == 1
    assert conclude(claims([])) == 1
