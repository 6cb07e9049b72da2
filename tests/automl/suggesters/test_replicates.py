"""Configurations that run again with another seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import automl
from automl.cli import cli
from automl.core import Trial, TrialState, parse_goals
from automl.errors import SpaceExhausted, UsageError
from automl.suggesters.base import Prospect
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import Proposer
from automl.suggesters.random import RandomSuggester
from search_spaces import Float, Space

GOALS = parse_goals("minimize loss")
SPACE = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))


def noisy(trial: Any) -> float:
    noise = np.random.default_rng(trial.seed).normal()
    return float((trial.params["x"] - 0.6) ** 2 + 0.2 * noise)


def swept(store: Path, objective: Any, space: Any = None, **settings: Any) -> automl.Result:
    space = {"x": (0.0, 1.0)} if space is None else space
    options = {"dispatcher": "inline", "store": str(store), "progress": False}
    return automl.sweep(objective, space, "minimize loss", **options, **settings)


def done(number: int, x: float, loss: float, replicate_of: int | None = None) -> Trial:
    params = {"x": x, "y": 0.5}
    return Trial(number, params, TrialState.COMPLETED, {"loss": loss}, replicate_of=replicate_of)


def test_each_configuration_runs_so_many_times_with_different_seeds(tmp_path: Path) -> None:
    seeds = []

    def objective(trial: Any) -> float:
        seeds.append(trial.seed)
        return noisy(trial)

    result = swept(tmp_path, objective, replicates=3, trials=9, suggester="random")
    assert [t.replicate_of for t in result.trials] == [None, 0, 0, None, 3, 3, None, 6, 6]
    assert len(set(seeds)) == 9
    for trial in result.trials:
        if trial.replicate_of is not None:
            assert trial.params == result.trials[trial.replicate_of].params
    words = ["trials", result.name, "--store", str(tmp_path)]
    rows = json.loads(CliRunner().invoke(cli, [*words, "--json"]).output)
    assert [row["replicate_of"] for row in rows[:4]] == [None, 0, 0, None]
    assert "trial 0 again: " in CliRunner().invoke(cli, words).output
    again = automl.load(result.name, str(tmp_path))
    assert [t.replicate_of for t in again.trials[:2]] == [None, 0], "the log has it"


def test_a_function_that_ignores_its_seed_is_noticed_and_nothing_more_is_repeated(
    tmp_path: Path,
) -> None:
    result = swept(tmp_path, lambda t: t.params["x"], replicates=3, trials=6, suggester="random")
    assert [t.replicate_of for t in result.trials] == [None, 0, None, None, None, None]
    from automl.report.answer import caveats

    assert any(
        "trials 0 and 1 have the same loss" in one
        for one in caveats(result.snapshot, result.snapshot.spec.space)
    )


def test_auto_repeats_in_the_last_fifth_only(tmp_path: Path) -> None:
    result = swept(tmp_path, noisy, trials=15, seed=1)
    again = [t for t in result.trials if t.replicate_of is not None]
    assert len(result.trials) == 15
    assert 1 < len(again) <= 3
    assert again[0].number == 12, "the last fifth begins with the best"
    before = result.trials[:12]
    assert again[0].replicate_of == min(before, key=lambda t: t.metrics["loss"]).number
    assert result.recommended is not None


def test_a_space_without_new_configurations_has_a_fifth_of_repeated_trials(tmp_path: Path) -> None:
    space = {"k": list("abcd")}
    result = swept(tmp_path, noisy_choice, space, trials=12)
    assert [t.replicate_of is None for t in result.trials] == [True] * 4 + [False]
    assert "every configuration" in result.snapshot.reason
    none = swept(tmp_path, noisy_choice, space, replicates="none", trials=12)
    assert len(none.trials) == 4


class Repeats(RandomSuggester):
    """Always says that this trial is to run again."""

    number: int | None = 0

    def prospect(self, *args: Any) -> Prospect:
        return Prospect(gain=1.0, error=0.1, repeat=self.number)


def proposed(
    history: list[Trial], pending: list[Trial], count: int, again: int | None = 0, *, last: bool
) -> list[int | None]:
    """Of which trials the proposals are further runs."""
    suggester = Repeats(SPACE, GOALS)
    suggester.number = again
    proposer = Proposer(lambda name, domain: suggester, "random", Domain(SPACE), replicates="auto")
    batch = proposer.propose(history, pending, count, last_part=last)
    return [one.replicate_of for one in batch.proposals]


def runs(count: int) -> list[Trial]:
    """Trials that become worse and worse."""
    return [done(i, i / 100, float(i)) for i in range(count)]


def test_the_best_runs_again_first_and_alone() -> None:
    assert proposed(runs(10), [], 2, again=3, last=False) == [None, None]
    assert proposed(runs(10), [], 2, again=3, last=True) == [0, None]
    running = Trial(10, runs(1)[0].params, replicate_of=0)
    assert proposed(runs(10), [running], 2, again=3, last=True) == [None, None]
    assert proposed(runs(3), [], 1, last=True) == [None], "one of four is more than a fifth"


def test_further_runs_follow_if_runs_differ() -> None:
    differs = [*runs(19), done(19, 0.0, 0.5, 0)]
    assert proposed(differs, [], 2, again=3, last=True) == [3, None]
    assert proposed(differs, [], 1, again=19, last=True) == [0], "it is a run of trial 0"
    assert proposed(differs, [], 1, again=None, last=True) == [None]
    running = Trial(20, differs[3].params, replicate_of=3)
    assert proposed(differs, [running], 1, again=3, last=True) == [None]
    equal = [*runs(19), done(19, 0.0, 0.0, 0)]
    assert proposed(equal, [], 1, again=3, last=True) == [None]
    most = [*differs, *(done(i, 0.0, 0.1 * i, 0) for i in range(20, 24))]
    assert proposed(most, [], 1, again=3, last=True) == [None], "a fifth of the trials are repeated"


def test_nothing_is_repeated_once_a_trial_was_stopped_early() -> None:
    stopped = replace(done(10, 0.3, 3.0), state=TrialState.STOPPED)
    assert proposed([*runs(10), stopped], [], 1, last=True) == [None]


def test_a_sweep_ends_if_its_recommendation_is_settled(tmp_path: Path) -> None:
    settled = {"until": "settled", "trials": 60}
    result = swept(tmp_path, noisy, budget=settled)
    assert len(result.trials) < 60
    assert "the recommendation is settled" in result.snapshot.reason
    with pytest.raises(UsageError, match="'settled'"):
        swept(tmp_path, noisy, budget={"until": "bored"})
    with pytest.raises(UsageError, match="a budget of settled needs a single goal"):
        swept(tmp_path, noisy, budget=settled, suggester="random")


def test_an_optimizer_repeats_only_what_is_run_again_and_added() -> None:
    with automl.Optimizer({"k": ["a", "b"]}, "minimize loss", suggester="random") as optimizer:
        for value in (1.0, 2.0):
            optimizer.tell(optimizer.ask(), value)
        with pytest.raises(SpaceExhausted):
            optimizer.ask()
        advice = optimizer.recommended
        assert advice is not None
        optimizer.add(advice.params, 1.4)
        again = optimizer.recommended
        assert again is not None
        assert (advice.runs, again.runs, again.mean) == (1, 2, pytest.approx(1.2))


@pytest.mark.parametrize("wrong", [0, "often", True, 1.5])
def test_wrong_replicates_are_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match="replicates must be 'auto', 'none', or a whole number"):
        swept(tmp_path, noisy, replicates=wrong, trials=2)


def noisy_choice(trial: Any) -> float:
    return float(np.random.default_rng(trial.seed).normal())
