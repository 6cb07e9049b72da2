"""The verbs of agents, which run trials elsewhere: ask and tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from automl.errors import UsageError

from . import NO_SUCCESS, SHOULD_STOP
from .common import emit, say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def ask(ledger: Ledger, sweep: str, lease: float | None, agent: str, as_json: bool) -> int | None:
    """Get a trial and print it; status 3 if there is none."""
    from automl.workflows import agents

    answer = agents.ask(ledger, sweep, lease=lease, agent=agent)
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        return NO_SUCCESS
    if not as_json:
        params = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {params}")
        seconds = f"{answer['lease_seconds']:g} s"
        say(f"report or tell within {seconds}, or ask with a longer --lease", err=True)
    return None


def tell(
    ledger: Ledger, sweep: str, trial: int, metrics: Any, as_json: bool, **given: Any
) -> int | None:
    """End a trial, or report a step of it; status 10 if it should stop."""
    from automl.workflows import agents

    if given["step"] is not None and metrics == {}:
        raise UsageError("a report needs a metric, such as loss=0.12")
    answer = agents.tell(ledger, sweep, trial, metrics, **given)
    if as_json:
        emit(answer)
    if "stop" in answer:
        if answer["stop"]:
            say(f"trial {answer['trial']} should stop: {answer['reason']}", err=True)
            return SHOULD_STOP
        return None
    if not as_json:
        failure = f" ({answer['failure']})" if answer["failure"] else ""
        message = f": {answer['message']}" if answer["message"] else ""
        again = "; it was told before" if answer["same"] else ""
        say(f"trial {answer['trial']} is {answer['state']}{failure}{message}{again}")
    return None
