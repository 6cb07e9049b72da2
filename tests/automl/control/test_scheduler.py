"""What runs next: proposals, replacements of a failed suggester, paused trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from objectives import make_spec, run_inline, states

from automl.core import Noted, Trial, TrialState
from automl.errors import AutomlError
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.stopping.base import CONTINUE, Decision, Stopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from search_spaces import Choice, Float, Space


def test_without_defaults_trial_0_is_the_suggesters(ledger: Ledger) -> None:
    space = Space(Float("lr", 0.0, 1.0), Choice("optimizer", ["sgd", "adam"]))
    snapshot = run_inline(ledger, make_spec(space=space, trials=2))
    assert [trial.source for trial in snapshot.trials] == ["random", "random"]


def test_a_space_that_is_used_up_ends_a_sweep(ledger: Ledger) -> None:
    space = Space(Choice("a", [1, 2]), Choice("b", [1, 2]))
    spec = make_spec(space=space, suggester="sobol", trials=50)
    snapshot = run_inline(ledger, spec, lambda trial: {"loss": 1.0})
    assert snapshot.state == "finished"
    assert 4 <= len(snapshot.trials) <= 50


class Sabotaged(Suggester):
    """Fails from its second suggestion on, as often as `bad` says."""

    name = "sabotaged"
    bad: Sequence[Any] = ()
    calls = 0

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> Any:
        type(self).calls += 1
        place = self.calls - 2
        if 0 <= place < len(self.bad):
            answer = self.bad[place]
            if isinstance(answer, Exception):
                raise answer
            return answer
        return [{"lr": 10.0 ** -(1 + self.calls % 4 + self.calls / 100), "optimizer": "sgd"}]


NONSENSE = [
    None,
    "sgd",
    [{}],
    [{"lr": 5.0, "optimizer": "sgd"}],
    [{"lr": 1e-3, "optimizer": "sgd", "x": 1}],
    [1],
]


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Any]], None]:
    get = SUGGESTERS.get

    def use(bad: Sequence[Any]) -> None:
        monkeypatch.setattr(Sabotaged, "bad", bad)
        monkeypatch.setattr(Sabotaged, "calls", 0)
        monkeypatch.setattr(
            SUGGESTERS, "get", lambda name: Sabotaged if name == "sobol" else get(name)
        )

    return use


@pytest.mark.parametrize("bad", [RuntimeError("singular"), *NONSENSE], ids=repr)
def test_a_suggester_that_fails_is_replaced_for_once_and_it_is_recorded(
    ledger: Ledger, sabotage: Callable[[Sequence[Any]], None], bad: Any
) -> None:
    sabotage([bad, bad])
    snapshot = run_inline(ledger, make_spec(trials=5, suggester="sobol"))
    assert [trial.source for trial in snapshot.trials] == [
        "default",
        "sobol",
        "random",
        "random",
        "sobol",
    ]
    notes = [
        event
        for event in ledger.events("test")
        if isinstance(event, Noted) and event.kind == "fallback"
    ]
    assert len(notes) == 2
    assert "random proposes instead" in notes[0].message


def test_a_suggester_that_fails_three_times_in_a_row_ends_the_sweep(
    ledger: Ledger, sabotage: Callable[[Sequence[Any]], None]
) -> None:
    sabotage([RuntimeError("singular")] * 3)
    with pytest.raises(AutomlError, match="failed 3 times in a row: RuntimeError: singular"):
        run_inline(ledger, make_spec(trials=9, suggester="sobol"))
    kept = ledger.snapshot("test")
    assert (kept.state, states(kept)) == ("failed", ["completed"] * 4)


class Strict(Stopper):
    """Stops each trial at its first report, and would stop trial 0 too; pauses trial 3 once."""

    name = "strict"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        assert trials[trial.number] is trial
        assert trial.number != 0
        if trial.number == 3:
            return Decision("pause", "later") if trial.attempts == 1 else CONTINUE
        return (
            Decision("stop", f"trial {trial.number} is hopeless") if trial.number < 5 else CONTINUE
        )

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        paused = [
            trial.number
            for trial in trials
            if trial.state is TrialState.PAUSED and trial.number == 3
        ]
        return (paused[0], "promoted") if paused and len(trials) > 4 else None


def test_a_stopper_stops_pauses_and_takes_up_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STOPPERS, "get", lambda name: Strict)
    snapshot = run_inline(ledger, make_spec(trials=6))
    assert states(snapshot) == [
        "completed",
        "stopped",
        "stopped",
        "completed",
        "stopped",
        "completed",
    ]
    assert [trial.attempts for trial in snapshot.trials] == [1, 1, 1, 2, 1, 1]
    assert len(snapshot.trials[1].reports) == 1
    notes = [
        (event.kind, event.trial) for event in ledger.events("test") if isinstance(event, Noted)
    ]
    assert notes == [("stop", 1), ("stop", 2), ("pause", 3), ("stop", 4)]
