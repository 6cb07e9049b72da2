"""What an agent does: ask for a trial, report its steps, tell its result. Plain data in and out.

An agent is any program that runs trials of a sweep without being started by it: in another
language, on another machine. Each function answers as `automl.actions.agents` declares.
"""

from collections.abc import Mapping
from typing import Any

from automl.actions import ACTIONS
from automl.actions.action import documented
from automl.core import Command, arguments
from automl.errors import FAILURE_KINDS, UsageError
from automl.ledger import Ledger
from search_spaces.validation import show

from .requests import WAIT_SECONDS, request, whoami


@documented(ACTIONS["ask"])
def ask(
    ledger: Ledger,
    sweep: str,
    *,
    agent: str = "",
    lease: float | None = None,
    wait: float = WAIT_SECONDS,
) -> Mapping[str, Any]:
    """A trial to run, with a lease on it.

    Returns:
        `trial` (its number), `attempt`, `params`, `seed`, `lease_seconds`, and `resumed`: whether
        an earlier attempt was begun. `trial` is None, with a `reason`, if the sweep gives no more.

    Raises:
        UsageError: there is no such sweep, or an argument is wrong.
        AutomlError: no trial can be suggested, or there is no answer in time.
    """
    if lease is not None and arguments.finite("a lease", lease) <= 0:
        raise UsageError(f"a lease must last longer than 0 s, got {lease:g}")
    content = {"seconds": lease, "wait": wait}
    return request(ledger, sweep, Command("ask", content, by=agent or whoami()), wait)


@documented(ACTIONS["report-step"])
def report_step(
    ledger: Ledger,
    sweep: str,
    trial: int,
    step: int,
    metrics: Mapping[str, Any] | float,
    *,
    attempt: int | None = None,
    agent: str = "",
) -> Mapping[str, Any]:
    """Report metrics at a step, and renew the lease; a number is the value of the only goal.

    Returns:
        `trial`, `attempt`, `stop` (whether the trial should end; `tell` then ends it) and `reason`.

    Raises:
        UsageError: there is no such trial, or the step is below an earlier one.
        AutomlError: the lease is over: end the training.
    """
    content = {
        "attempt": _attempt(attempt),
        "step": arguments.whole("a step", step),
        "metrics": _metrics(ledger, sweep, metrics),
    }
    return _send(ledger, sweep, "report", content, trial, agent)


@documented(ACTIONS["tell"])
def tell(
    ledger: Ledger,
    sweep: str,
    trial: int,
    metrics: Mapping[str, Any] | float,
    *,
    attempt: int | None = None,
    agent: str = "",
) -> Mapping[str, Any]:
    """End a trial with its metrics, which are added to the reported ones.

    With one goal its value is enough.

    The same once more is accepted, so an agent that got no answer may repeat it.

    Returns:
        `trial`, `attempt`, `state`, `failure`, `message`, and `same`: whether it was told before.

    Raises:
        UsageError: there is no such trial, or a goal has no value.
        AutomlError: the lease is over, or the trial has ended with other values.
    """
    content = {"attempt": _attempt(attempt), "metrics": _metrics(ledger, sweep, metrics)}
    return _send(ledger, sweep, "tell", content, trial, agent)


@documented(ACTIONS["fail"])
def fail(
    ledger: Ledger,
    sweep: str,
    trial: int,
    failure: str,
    message: str = "",
    *,
    attempt: int | None = None,
    agent: str = "",
) -> Mapping[str, Any]:
    """End a trial with a failure; a trial that was preempted is tried again.

    Returns:
        What `tell` returns.

    Raises:
        UsageError: there is no such trial or kind of failure.
        AutomlError: the lease is over.
    """
    if failure not in FAILURE_KINDS:
        raise UsageError(f"a failure is one of {', '.join(FAILURE_KINDS)}, got {show(failure)}")
    content = {
        "attempt": _attempt(attempt),
        "failure": failure,
        "message": arguments.text("message", message),
    }
    return _send(ledger, sweep, "fail", content, trial, agent)


def _send(
    ledger: Ledger, sweep: str, kind: str, content: Mapping[str, Any], trial: int, agent: str
) -> Mapping[str, Any]:
    number = arguments.whole("trial", trial, least=0)
    return request(ledger, sweep, Command(kind, content, number, by=agent or whoami()))


def _attempt(attempt: int | None) -> int | None:
    return arguments.optional(arguments.whole, "attempt", attempt, least=1)


def _metrics(ledger: Ledger, sweep: str, given: Any) -> dict[str, float]:
    if isinstance(given, Mapping):
        return arguments.numbers(given)
    return arguments.value_of_goal([goal.metric for goal in ledger.spec(sweep).goals], given)
