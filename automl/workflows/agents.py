"""What an agent does: ask for a trial, report its steps, tell its result. Plain data in and out.

An agent is any program that runs trials of a sweep without being started by it: in another
language, on another machine.
"""

import getpass
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from automl.control.wiring import attend
from automl.core import Command, arguments
from automl.errors import FAILURE_KINDS, AutomlError, UsageError
from automl.ledger import Ledger
from search_spaces.validation import show

WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = (0.02, 0.2)  # between two looks: the first, and the longest


def ask(
    ledger: Ledger,
    sweep: str,
    *,
    agent: str = "",
    lease: float | None = None,
    wait: float = WAIT_SECONDS,
) -> Mapping[str, Any]:
    """A trial to run, with a lease on it.

    Args:
        agent: who runs the trial; "" for the user and host of this process.
        lease: seconds without a report after which the trial is given to another; None for the
            timeout of the sweep, else 60.
        wait: seconds to wait for an answer.

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


def tell(
    ledger: Ledger,
    sweep: str,
    trial: int,
    metrics: Mapping[str, Any] | float | None = None,
    *,
    step: int | None = None,
    failed: str | None = None,
    message: str = "",
    attempt: int | None = None,
    agent: str = "",
) -> Mapping[str, Any]:
    """End a trial with its metrics, which are added to the reported ones, or report a step of it.

    The same result once more is accepted, so an agent that got no answer may repeat it.

    Args:
        metrics: numbers by name, or the value of the only goal.
        step: of a report, which renews the lease; None if the trial ends.
        failed: kind of the failure that ends the trial. If it was preempted, it is tried again.
        message: describes the failure to a person.
        attempt: that `ask` has given; refused if another one runs.
        agent: who runs the trial; "" for the user and host of this process.

    Returns:
        Of a report: `trial`, `attempt`, `stop` (whether the trial should end; tell what there is)
        and `reason`. Of an end: `trial`, `attempt`, `state`, `failure`, `message`, and `same`:
        whether it was told before.

    Raises:
        UsageError: there is no such trial or kind of failure, the step is below an earlier one, or
            a goal has no value.
        AutomlError: the lease is over, or the trial has ended with other values.
    """
    if attempt is not None:
        attempt = arguments.whole("attempt", attempt, least=1)
    content: dict[str, Any] = {"attempt": attempt}
    given = _metrics(ledger, sweep, {} if metrics is None else metrics)
    kind = "tell" if step is None else "report"
    if failed is not None:
        if step is not None or given:
            raise UsageError("a trial that failed has neither a step nor metrics")
        if failed not in FAILURE_KINDS:
            kinds = ", ".join(FAILURE_KINDS)
            raise UsageError(f"a failure is one of {kinds}, got {show(failed)}")
        kind = "fail"
        content |= {"failure": failed, "message": message}
    else:
        content["metrics"] = given
        if step is not None:
            content["step"] = arguments.whole("a step", step)
    number = arguments.whole("trial", trial, least=0)
    return request(ledger, sweep, Command(kind, content, number, by=agent or whoami()))


def _metrics(ledger: Ledger, sweep: str, given: Any) -> dict[str, float]:
    goals = () if isinstance(given, Mapping) else ledger.spec(sweep).goals
    return arguments.numbers(given, [goal.metric for goal in goals])


def whoami() -> str:
    """Who sends a request from this process: its user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def request(
    ledger: Ledger, sweep: str, command: Command, wait: float = WAIT_SECONDS
) -> Mapping[str, Any]:
    """The answer to a request.

    A running controller answers within a second. Without one, this process holds the sweep for a
    moment and answers every request that waits. So of many that come at once, one serves all.

    Args:
        wait: seconds to wait for the answer.

    Raises:
        UsageError: there is no such sweep or trial, or an argument is wrong.
        AutomlError: the request is refused, or there is no answer in time.
    """
    (identity,) = ledger.append(sweep, command)
    deadline = time.monotonic() + wait
    pause, longest = _PAUSE_SECONDS
    while True:
        answered, is_held = ledger.answer(sweep, identity)
        if answered is not None:
            return _checked(answered.content)
        if time.monotonic() > deadline:
            raise AutomlError(
                f"sweep {sweep!r} has not answered within {wait:g} s: "
                "its controller hangs, or many wait for it; try again"
            )
        if is_held or not attend(ledger, sweep):
            time.sleep(pause)
            pause = min(1.5 * pause, longest)


def _checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in content:
        raise (UsageError if content["usage"] else AutomlError)(content["error"])
    return content
