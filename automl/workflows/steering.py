"""What people do with a sweep while it runs, in plain data. The ledger keeps who did it and when.

Each function sends one command. Requests are obeyed by the running controller within a second, or
by this process if there is none. Marks (a star, tags, a note) need nobody to obey them.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from automl.control.wiring import attend
from automl.core import Command, arguments
from automl.core.marks import MARK, NO_MARKS, Marks
from automl.core.worker_range import WorkerRange
from automl.errors import UsageError
from automl.ledger import Ledger

from .requests import request, whoami

_PAUSE_SECONDS: Final = 0.05
_MAX_TEXT: Final = 4096  # characters of a note or of all tags


def stop_sweep(ledger: Ledger, sweep: str, by: str = "") -> str:
    """End a sweep; its trials stop at their next report, and their results count.

    Args:
        by: who wants it; "" for the user and host of this process, as in all functions here.

    Returns:
        What happens, in words.
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


def stop_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """End a trial for good; a running one stops at its next report.

    Returns:
        What happens, in words.

    Raises:
        UsageError: there is no such sweep or trial.
        AutomlError: the trial has ended already.
    """
    return _of_trial(ledger, sweep, "stop_trial", trial, by)


def pause_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Pause a running trial at its next report, until `resume_trial`.

    Raises:
        UsageError: there is no such sweep or trial.
        AutomlError: the trial does not run, or it cannot go on from a checkpoint.
    """
    return _of_trial(ledger, sweep, "pause_trial", trial, by)


def resume_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Let a paused trial go on before any new one.

    Raises:
        UsageError: there is no such sweep or trial.
        AutomlError: the trial is not paused, or the sweep has ended.
    """
    return _of_trial(ledger, sweep, "resume_trial", trial, by)


def retry_trial(ledger: Ledger, sweep: str, trial: int, by: str = "") -> str:
    """Try the configuration of a finished trial again, as a new trial.

    Raises:
        UsageError: there is no such sweep or trial.
        AutomlError: the trial has not ended, or the sweep has.
    """
    return _of_trial(ledger, sweep, "retry_trial", trial, by)


def set_budget(ledger: Ledger, sweep: str, limits: Mapping[str, Any], by: str = "") -> str:
    """Change limits of the budget, also while the sweep runs. Others stay as they are.

    Args:
        limits: by name: `trials`, `time` and `worker_time` in seconds, `target`, `gain`; None to
            remove one.

    Raises:
        UsageError: a limit is unknown or malformed.
        AutomlError: the sweep is ending already.
    """
    known = ("trials", "time", "worker_time", "target", "gain")
    if not limits or set(limits) - set(known):
        raise UsageError(
            f"a budget has {', '.join(known)}, got {', '.join(map(str, limits)) or 'nothing'}"
        )
    command = Command("budget", dict(limits), by=by or whoami())
    return str(request(ledger, sweep, command)["done"])


def scale(ledger: Ledger, sweep: str, workers: int, least: int | None = None, by: str = "") -> str:
    """Change the number of workers, also while the sweep runs on a cluster.

    Workers that are too many end after their trials.

    Args:
        workers: how many, or the most of a range.
        least: of the range; None for the same.

    Raises:
        UsageError: a number is wrong, or too low for the ranks of a trial.
        AutomlError: the sweep runs, and not on Ray.
    """
    wanted = WorkerRange(workers if least is None else least, workers)
    command = Command("scale", {"min": wanted.min, "max": wanted.max}, by=by or whoami())
    return str(request(ledger, sweep, command)["done"])


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

    Args:
        trial: its number; None for the sweep.
        star: whether it has a star; None to leave it.
        add_tags, remove_tags: words.
        note: replaces the note; "" removes it, None leaves it.
        archived: whether the studio leaves the sweep out of its list; None to leave it.

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
            content[name] = [_short("a tag", tag) for tag in tags]
    if note is not None:
        content["note"] = _short("a note", note)
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
    return str(request(ledger, sweep, Command(kind, {}, number, by=by or whoami()))["done"])


def _short(name: str, text: str) -> str:
    if len(text) > _MAX_TEXT:
        raise UsageError(f"{name} has at most {_MAX_TEXT} characters, got {len(text)}")
    return arguments.text(name, text)
