"""What people do with a sweep while it runs, in plain data. The ledger keeps who did it and when.

Each function sends one command. Requests are obeyed by the running controller within a second, or
by this process if there is none. Marks (a star, tags, a note) need nobody to obey them. Functions
that return a text say what happens. They raise UsageError if there is no such sweep or trial, and
AutomlError if the state of the trial or the sweep does not allow it.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from automl.actions import ACTIONS
from automl.actions.action import documented
from automl.actions.steering import LIMITS_OF_BUDGET
from automl.config.limits import known_parameter, limit_of
from automl.control.wiring import attend
from automl.core import Command, arguments
from automl.core.marks import MARK, NO_MARKS, Marks
from automl.core.worker_range import WorkerRange
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters.domain import Limit
from search_spaces import Choice, Float, Int, Space
from search_spaces.validation import plain, plain_params

from . import next_trials
from .requests import request, whoami

_PAUSE_SECONDS: Final = 0.05


@documented(ACTIONS["stop"])
def stop_sweep(ledger: Ledger, sweep: str, by: str = "") -> str:
    """End a sweep; its trials stop at their next report, and their results count.

    Its controller ends it; without one, this process ends a sweep that agents serve.
    """
    who = by or whoami()
    while True:
        snapshot = ledger.snapshot(sweep, condensed=True)
        if snapshot.state == "running" and not snapshot.brief:
            ledger.send(sweep, Command("stop", {}, by=who))
            return f"asked {sweep} to stop; see automl status {sweep}"
        agents = sum(trial.lease is not None for trial in snapshot.trials)
        serves = agents > 0 or snapshot.for_agents
        if not snapshot.brief and (not serves or snapshot.state == "finished"):
            return f"{sweep} is not running, it is {snapshot.state}"
        if attend(ledger, sweep, stop="it was asked to stop"):
            ledger.send(sweep, Command("stop", {}, by=who))
            running = f"; {agents} stop at their agents' next reports" if agents else ""
            return f"{sweep} gives no more trials{running}"
        time.sleep(_PAUSE_SECONDS)  # somebody else holds the sweep for a moment


@documented(ACTIONS["stop"])
def stop_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """End a trial for good; a running one stops at its next report."""
    return _of_trial(ledger, sweep, "stop_trial", trial, by)


@documented(ACTIONS["pause"])
def pause_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Pause a running trial that can go on from a checkpoint, until `resume_trial`."""
    return _of_trial(ledger, sweep, "pause_trial", trial, by)


@documented(ACTIONS["resume"])
def resume_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Let a paused trial go on before any new one."""
    return _of_trial(ledger, sweep, "resume_trial", trial, by)


@documented(ACTIONS["retry"])
def retry_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Try the configuration of a finished trial again, as a new trial."""
    return _of_trial(ledger, sweep, "retry_trial", trial, by)


@documented(ACTIONS["budget"])
def set_budget(ledger: Ledger, sweep: str, by: str = "", **limits: float | None) -> str:
    """Change the limits of the budget that are named; None removes one. Times are in seconds.

    Raises:
        UsageError: a limit is unknown or malformed.
        AutomlError: the sweep is ending already.
    """
    known = [one.name for one in LIMITS_OF_BUDGET]
    if not limits or set(limits) - set(known):
        raise UsageError(f"a budget has {', '.join(known)}, got {', '.join(limits) or 'nothing'}")
    return _done(ledger, sweep, Command("budget", limits, by=by or whoami()))


@documented(ACTIONS["scale"])
def scale(ledger: Ledger, sweep: str, workers: int, least: int | None = None, by: str = "") -> str:
    """Change the number of workers, also while the sweep runs on a cluster.

    Workers that are too many end after their trials.

    Raises:
        UsageError: a number is wrong, or too low for the ranks of a trial.
        AutomlError: the sweep runs, and not on Ray.
    """
    wanted = WorkerRange(workers if least is None else least, workers)
    content = {"min": wanted.min, "max": wanted.max}
    return _done(ledger, sweep, Command("scale", content, by=by or whoami()))


@documented(ACTIONS["pin"])
def pin(
    ledger: Ledger,
    sweep: str,
    limits: Mapping[str, Any] | None = None,
    release: Iterable[str] = (),
    by: str = "",
) -> Mapping[str, Any]:
    """Pin or narrow parameters, or release them, from the next suggestion on.

    A limit is a value, `{"low": ..., "high": ...}`, or `{"choices": [...]}`.

    Returns:
        What happens, in words (`done`), and the `limits` that hold now.
    """
    space = ledger.spec(sweep).space
    given = {name: _limit(space, name, value) for name, value in (limits or {}).items()}
    if not given and not release:
        raise UsageError("name a parameter in limits or in release")
    after = next_trials.pin(ledger, sweep, given, release, by)
    shown = "; ".join(f"{name}: {limit}" for name, limit in after.items())
    return {
        "done": f"from the next suggestion on: {shown}" if shown else "nothing is limited",
        "limits": {name: limit.to_dict() for name, limit in after.items()},
    }


@documented(ACTIONS["enqueue"])
def enqueue(
    ledger: Ledger, sweep: str, params: Mapping[str, Any], by: str = ""
) -> Mapping[str, Any]:
    """Give the sweep a configuration to try next.

    Returns:
        What happens, in words (`done`), the whole configuration (`params`), and the number of the
        `trial` that waits; None if the sweep runs.
    """
    whole, number = next_trials.try_next(ledger, sweep, plain_params(params), by)
    done = f"{sweep} tries it next" if number is None else f"trial {number} waits for a resume"
    return {"done": done, "params": dict(whole), "trial": number}


@documented(ACTIONS["mark"])
def mark(
    ledger: Ledger,
    sweep: str,
    trial: int | None = None,
    *,
    star: bool | None = None,
    add_tags: Iterable[str] = (),
    remove_tags: Iterable[str] = (),
    note: str | None = None,
    archived: bool | None = None,
    by: str = "",
) -> Mapping[str, Any]:
    """Star, tag or annotate a trial, or the sweep itself; archive the sweep.

    What is None stays as it is.

    Returns:
        The marks that it has now, see `marks`.

    Raises:
        UsageError: there is no such sweep or trial, or a text is too long.
    """
    content: dict[str, Any] = {}
    if star is not None:
        content["star"] = arguments.flag("star", star)
    for name, given in (("add_tags", add_tags), ("remove_tags", remove_tags)):
        tags = arguments.listed("a tag", given, str, "a word")
        if tags:
            content[name] = [arguments.text("a tag", tag) for tag in tags]
    if note is not None:
        content["note"] = arguments.text("a note", note)
    if archived is not None:
        content["archived"] = arguments.flag("archived", archived)
        if trial is not None:
            raise UsageError("only a sweep can be archived, not a trial")
    if trial is not None:
        number = arguments.whole("trial", trial, least=0)
        count = len(ledger.trials(sweep))
        if number >= count:
            raise UsageError(f"there is no trial {number}: there are {count}")
    if content:
        ledger.send(sweep, Command(MARK, content, trial, by=by or whoami()))
    return marks(ledger, sweep).get(trial, NO_MARKS)


def marks(ledger: Ledger, sweep: str) -> Marks:
    """The marks of a sweep (None) and of its trials, by number, of those that have any.

    Returns:
        `star`, `tags`, `note` and `archived` of each, with `by` and `when` of the last change
        (seconds since 1970).
    """
    return ledger.state(sweep).marks


def _of_trial(ledger: Ledger, sweep: str, kind: str, trial: int, by: str) -> str:
    number = arguments.whole("trial", trial, least=0)
    return _done(ledger, sweep, Command(kind, {}, number, by=by or whoami()))


def _done(ledger: Ledger, sweep: str, command: Command) -> str:
    """What happens, in words."""
    return str(request(ledger, sweep, command)["done"])


def _limit(space: Space, name: str, value: Any) -> Limit:
    if not isinstance(value, dict):
        return limit_of(space, name, plain(value))
    parameter = known_parameter(space, name)
    if "choices" in value:
        if not isinstance(parameter, Choice):
            raise UsageError(f"{name} is a number: its limit is a value, or low and high")
        return limit_of(space, name, tuple(map(plain, value["choices"])))
    if not isinstance(parameter, Float | Int):
        raise UsageError(f"{name} has choices: its limit is a value, or choices")
    ends = ((value.get(key), getattr(parameter, key)) for key in ("low", "high"))
    wanted = (end if given is None else _of_kind(given, end) for given, end in ends)
    return limit_of(space, name, tuple(wanted))


def _of_kind(value: float, end: float | int) -> float | int:
    """A whole number if the parameter's are, such as 8.0 of JSON."""
    return int(value) if isinstance(end, int) and float(value).is_integer() else value
