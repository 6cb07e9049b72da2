"""What people and agents do with a sweep while it runs, in plain data; the ledger keeps it.

An agent is any program that runs trials of a sweep without being started by it, in any language and
on any machine: it asks for a trial, reports its steps and tells its result.

Requests are obeyed by the running controller within a second, or by this process if there is none.
The functions raise UsageError if there is no such sweep or trial or a value is wrong, and
AutomlError if the state of the trial or the sweep does not allow it.
"""

import getpass
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from automl.config.loading import known_parameter, limit_of, read_changes
from automl.control.controller import attend
from automl.control.outcomes import writing
from automl.core import Command, Trial, arguments
from automl.core.ranking import original
from automl.errors import FAILURE_KINDS, AutomlError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import HeldError
from automl.suggesters.domain import Domain, updated_limits
from search_spaces.values import show

_PAUSE_SECONDS: Final = 0.05
AUTO: Final = "auto"  # the whole range of a parameter


def stop(ledger: Ledger, sweep: str, trial: int | None = None, by: str = "") -> str:
    """End a sweep, or one trial, at the next report; results count. Returns what happens.

    The controller ends a sweep; without one, this process ends a sweep that agents serve.

    Args:
        trial: its number; None for the whole sweep.
        by: who wants it; "" for the user and host of this process.
    """
    if trial is not None:
        return _of_trial(ledger, sweep, "stop_trial", trial, by)
    who = by or whoami()
    while True:
        snapshot = ledger.snapshot(sweep)
        if snapshot.state == "running" and not snapshot.brief:
            ledger.append(sweep, Command("stop", {}, by=who))
            return f"asked {sweep} to stop; see automl status {sweep}"
        agents = sum(trial.lease is not None for trial in snapshot.trials)
        serves = agents > 0 or snapshot.for_agents
        if not snapshot.brief and (not serves or snapshot.state == "finished"):
            return f"{sweep} is not running, it is {snapshot.state}"
        if attend(ledger, sweep, stop="it was asked to stop"):
            ledger.append(sweep, Command("stop", {}, by=who))
            running = f"; {agents} stop at their agents' next reports" if agents else ""
            return f"{sweep} gives no more trials{running}"
        time.sleep(_PAUSE_SECONDS)  # somebody else holds the sweep for a moment


def pause(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Pause a running trial that can go on from a checkpoint, until `resume_trial`."""
    return _of_trial(ledger, sweep, "pause_trial", trial, by)


def resume_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Let a paused trial go on before any new one."""
    return _of_trial(ledger, sweep, "resume_trial", trial, by)


def change(ledger: Ledger, sweep: str, changes: Mapping[str, Any], by: str = "") -> str:
    """Change a sweep, also while it runs. Returns what holds from now on, in words.

    Args:
        changes: by key: `budget.NAME` (None removes the limit), `workers` (a number, or a mapping
            of min and max), `space.NAME` (a value, a list of low and high or of choices, or "auto"
            for the whole range again).
        by: who wants it; "" for the user and host of this process.

    Raises:
        UsageError: a key or a value is wrong, or no configuration is left. Then nothing changes.
        AutomlError: the sweep is ending already, or its dispatcher cannot change the workers.
    """
    wanted = read_changes(arguments.mapping("changes", changes))
    if not changes:
        raise UsageError("name what to set, such as budget.trials, workers or space.NAME")
    limits = _limits(ledger, sweep, wanted.space)
    who, done = by or whoami(), []
    if wanted.budget:
        done.append(_done(ledger, sweep, Command("budget", wanted.budget, by=who)))
    if wanted.workers:
        content = {"min": wanted.workers.min, "max": wanted.workers.max}
        done.append(_done(ledger, sweep, Command("scale", content, by=who)))
    if limits:
        at = ledger.snapshot(sweep).seconds
        ledger.append(sweep, Command("limits", limits, at=at, by=who))
        shown = (f"{name}: {one}" for name, one in updated_limits([limits]).items())
        free = (f"{name}: its whole range" for name, one in limits.items() if one is None)
        done.append(f"from the next suggestion on: {'; '.join([*shown, *free])}")
    return "; ".join(done)


def _limits(ledger: Ledger, sweep: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that changes of the space mean, as a command has them; None for no limit."""
    spec, limits = ledger.spec(sweep), dict[str, Any]()
    for name, value in changes.items():
        is_auto = value == AUTO and not known_parameter(spec.space, name).legal(value)
        limits[name] = None if is_auto else limit_of(spec.space, name, value).to_dict()
    if limits:
        after = updated_limits([limits], updated_limits([ledger.state(sweep).limits]))
        Domain.of(spec).within(after)  # raises if no configuration is left
    return limits


def enqueue(
    ledger: Ledger,
    sweep: str,
    params: Mapping[str, Any] | None = None,
    trial: int | None = None,
    by: str = "",
    *,
    text: bool = False,
) -> Mapping[str, Any]:
    """Give the sweep a configuration to try next: now if it runs, otherwise after a resume.

    Args:
        params: values by parameter; one that is not named has its value of the best trial so far,
            or its default.
        trial: number of a finished trial whose configuration is tried again, instead.
        by: who wants it; "" for the user and host of this process.
        text: whether all values are texts, as a shell gives them.

    Returns:
        What happens, in words (`done`), the whole configuration (`params`), and the number of the
        `trial` that waits; None if the sweep runs.

    Raises:
        SpaceError: a value or the configuration is not legal.
    """
    if (params is None) == (trial is None):
        raise UsageError("give values of parameters, or the number of a trial to try again")
    spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
    if trial is not None:
        again = _finished(snapshot.trials, arguments.whole("trial", trial, least=0))
        whole, first = spec.space.accept(again.params), original(again)
    else:
        best = snapshot.best.params if snapshot.best else {}
        whole = spec.space.accept(arguments.mapping("params", params), text=text, rest=best)
        first = None
    command = Command("enqueue", whole, first, at=snapshot.seconds, by=by or whoami())
    (identity,) = ledger.append(sweep, command)
    number = None
    if snapshot.state != "running":
        try:
            with writing(ledger, sweep) as writer:
                if identity in writer.state.requests:
                    number = writer.propose(whole, "enqueued", identity, first).number
        except HeldError:  # a controller has begun meanwhile, and obeys
            pass
    done = f"{sweep} tries it next" if number is None else f"trial {number} waits for a resume"
    return {"done": done, "params": dict(whole), "trial": number}


def _finished(trials: Sequence[Trial], number: int) -> Trial:
    trial = arguments.numbered(trials, number)
    if not trial.state.finished:
        raise AutomlError(
            f"trial {number} is {trial.state}: only a finished one can be tried again"
        )
    return trial


def _of_trial(ledger: Ledger, sweep: str, kind: str, trial: int, by: str) -> str:
    number = arguments.whole("trial", trial, least=0)
    return _done(ledger, sweep, Command(kind, {}, number, by=by or whoami()))


def _done(ledger: Ledger, sweep: str, command: Command) -> str:
    """What happens, in words."""
    return str(request(ledger, sweep, command)["done"])


WAIT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = (0.02, 0.2)  # between two looks: the first, and the longest


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
        content |= {"failure": failed, "message": arguments.text("message", message)}
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
    wait_for, longest = _LOOK_SECONDS
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
            time.sleep(wait_for)
            wait_for = min(1.5 * wait_for, longest)


def _checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in content:
        raise (UsageError if content["usage"] else AutomlError)(content["error"])
    return content
