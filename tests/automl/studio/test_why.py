"""Why a trial was suggested: the terms of its acquisition, asked for on its page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE, loss_of, make_spec, run_inline
from studio_stores import Client, serving
from test_studio_pages import opened, violations

from automl.core import Trial, TrialState, parse_goals
from automl.ledger import Ledger
from automl.suggesters.bayes.suggester import BayesSuggester


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A sweep that `bayes` has really suggested."""
    folder: Path = tmp_path_factory.mktemp("tuned")
    ledger = Ledger.open(folder, create=True)
    run_inline(ledger, make_spec(trials=9, suggester="bayes"))
    ledger.close()
    with serving(str(folder)) as client:
        yield client


def test_the_terms_add_up_to_what_was_maximised() -> None:
    suggester = BayesSuggester(SPACE, parse_goals("minimize loss"), seed=3)
    history: list[Trial] = []
    for number in range(8):
        (params,) = suggester.suggest(history, [])
        found = suggester.explain(history, [], params)
        if number < 5:
            assert found is None, "the initial design has no acquisition"
        loss = {"loss": loss_of(params, 3)}
        history.append(Trial(number, params, TrialState.COMPLETED, metrics=loss))
    assert found is not None
    assert set(found.terms) == {"improvement", "constraints", "success"}
    assert found.terms["constraints"] == 0.0
    assert all(math.isfinite(value) for value in found.terms.values())
    acquisition = suggester._acquisition(suggester._reader(history[:-1]), 0, history[:-1])
    assert acquisition is not None
    value = float(acquisition(SPACE.encode([params]))[0])
    assert sum(found.terms.values()) == pytest.approx(value)
    assert found.other != params


def test_each_trial_has_its_reason(tuned: Client) -> None:
    def why(number: int) -> Any:
        return tuned.get(f"/api/sweeps/test/trials/{number}/why")

    assert why(0) == {"words": "It is the default configuration, which every sweep trains first."}
    assert why(2)["words"].startswith("It belongs to the initial design")
    found = why(8)
    assert (found["num_known"], found["num_pending"]) == (8, 0)
    assert set(found["terms"]) <= {"improvement", "success"}
    assert set(found["other"]) == set(SPACE.parameters)
    status, body, _ = tuned.ask("/api/sweeps/test/trials/99/why")
    assert status == 404
    assert b"has no trial 99" in body


def test_the_page_of_a_trial_says_why(chromium: Any, tuned: Client) -> None:
    with opened(chromium, tuned, "/sweeps/test/trials/8", bypass_csp=True) as page:
        page.click("button:text-is('Ask the surrogates')")
        page.wait_for_selector(".why table", timeout=120_000)
        text = page.inner_text(".why")
        assert "expected improvement" in text
        assert "automl enqueue test" in text
        assert violations(page) == []
