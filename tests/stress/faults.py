"""Named points at which a controller is killed with -9; wrappers around its methods set them."""

import os
import signal
from collections.abc import Callable
from typing import Any

from automl.control.controller import Controller
from automl.control.outcomes import Journal
from automl.core.events import Ended, Proposed
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Hold
from automl.suggesters.proposer import Proposer
from workers.protocol import Outcome, Report, Started

# Each point, and the state at which the controller dies.
POINTS = {
    "suggested": "a configuration was proposed and nothing knows of it yet",
    "recorded": "the proposal is in the ledger, and no worker has it",
    "dispatched": "a worker has the attempt",
    "running": "the controller knows that the attempt has started",
    "received": "a report has arrived and is not yet in the ledger",
    "renewing": "the lease is renewed in a transaction, and no event is in the log yet",
    "writing": "events are in the log, in a transaction that is not yet committed",
    "committed": "a report is in the ledger, and no decision was made about it",
    "ended": "an outcome has arrived and is not yet in the ledger",
    "finished": "the last commit is made, and the lock is still held",
}

ARRIVING = {Report: "received", Outcome: "ended"}


class Killer:
    """Kills this process when a point is passed, after `skip` earlier times."""

    def __init__(self, point: str, skip: int) -> None:
        self.point = point
        self.left = skip

    def passed(self, point: str) -> None:
        """Note that a point was passed."""
        if point != self.point:
            return
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def arm(point: str, skip: int = 0) -> None:
    """Make this process die at a point of the next sweep that it runs."""
    killer = Killer(point, skip)
    _after(Proposer, "propose", lambda *_: killer.passed("suggested"))
    _after(InlineDispatcher, "submit", lambda *_: killer.passed("dispatched"))
    _around(
        Controller,
        "_handle",
        lambda _, event, *__: killer.passed(ARRIVING.get(type(event), "")),
        lambda _, event, *__: isinstance(event, Started) and killer.passed("running"),
    )
    _after(Hold, "_renew", lambda *_: killer.passed("renewing"))
    _after(Hold, "_write_once", lambda hold, *_: hold._tried and killer.passed("writing"))
    _after(Journal, "close", lambda *_: killer.passed("finished"))
    _commits(killer)


def _commits(killer: Killer) -> None:
    commit = Hold.commit

    def wrapped(self: Hold, *args: Any, **kwargs: Any) -> None:
        events = list(self.state.unrecorded)
        commit(self, *args, **kwargs)
        if any(isinstance(event, Proposed) for event in events):
            killer.passed("recorded")
        if any(isinstance(event, Report | Ended) for event in events):
            killer.passed("committed")

    Hold.commit = wrapped  # type: ignore[method-assign]


def _around(kind: Any, name: str, before: Callable[..., Any], after: Callable[..., Any]) -> None:
    original = getattr(kind, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = original(*args, **kwargs)
        after(*args)
        return result

    setattr(kind, name, wrapped)


def _nothing(*_: Any) -> None:
    return


def _after(kind: Any, name: str, call: Callable[..., Any]) -> None:
    _around(kind, name, _nothing, call)
