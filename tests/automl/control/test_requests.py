"""Requests that cannot be applied are answered with the reason, recorded and dropped."""

from __future__ import annotations

from typing import Any

import pytest
from objectives import make_spec, quick, run_inline

from automl import sweeps
from automl.control.controller import attend
from automl.core import Answered, Command
from automl.ledger import Ledger


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Command("enqueue", {"lr": 99.0}), "lr"),
        (Command("tell", {}, 0), "the request 'tell' is malformed: KeyError: 'metrics'"),
        (Command("report", {"attempt": None, "step": "x", "metrics": []}, 0), "runs|lease"),
        (Command("ask", {}), "the request 'ask' is malformed"),
        (Command("dance", {}), "does not know the request 'dance'"),
        (Command("budget", {"trials": "many"}), "trials"),
    ],
    ids=lambda value: value.kind if isinstance(value, Command) else "",
)
@pytest.mark.parametrize("running", [True, False])
def test_a_request_that_cannot_be_applied_is_answered_and_dropped(
    ledger: Ledger, command: Command, reason: str, running: bool
) -> None:
    spec = make_spec(trials=2)
    if running:
        ledger.create_sweep(spec)

        def objective(trial: Any) -> Any:
            if trial.number == 0:
                ledger.append("test", command)
            return quick(trial)

        snapshot = sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="inline")
        assert len(snapshot.trials) == 2
    else:
        run_inline(ledger, spec, quick)
        ledger.append("test", command)
        assert attend(ledger, "test")
    assert ledger.state("test").requests == {}
    answers = [event for event in ledger.events("test") if isinstance(event, Answered)]
    assert len(answers) == 1
    assert any(word in answers[0].content["error"] for word in reason.split("|"))
