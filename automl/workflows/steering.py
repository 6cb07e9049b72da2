"""What people do with a sweep while it runs, in plain data. The ledger keeps who did it and when.

Requests are obeyed by the running controller within a second, or by this process if there is none.
The functions raise UsageError if there is no such sweep or trial or a value is wrong, and
AutomlError if the state of the trial or the sweep does not allow it.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from automl.config.overrides import known_parameter, limit_of, read_changes
from automl.control.controller import attend
from automl.control.journal import writing
from automl.core import Command, Trial, arguments
from automl.core.ranking import original
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import HeldError
from automl.suggesters.domain import Domain, updated_limits

from .agents import request, whoami

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
) -> Mapping[str, Any]:
    """Give the sweep a configuration to try next: now if it runs, otherwise after a resume.

    Args:
        params: values by parameter; one that is not named has its value of the best trial so far,
            or its default.
        trial: number of a finished trial whose configuration is tried again, instead.
        by: who wants it; "" for the user and host of this process.

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
        whole = spec.space.accept(arguments.mapping("params", params), rest=best)
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


def _finished(trials: Any, number: int) -> Trial:
    if number >= len(trials):
        raise UsageError(f"there is no trial {number}: there are {len(trials)}")
    trial: Trial = trials[number]
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
