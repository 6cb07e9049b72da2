"""The events of a sweep.

Workers send `Started`, `Report` and `Asked` (workers.protocol); the controller adds the events
below. A worker's `Outcome` is recorded inside `Ended`, with the decision of the controller on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from workers.protocol import Asked, Outcome, Params, Report, Started, StopRequest

from .trial import TrialState

GRACE_SECONDS: Final = 30.0  # for running trials, once a note "end" says that the sweep ends


@dataclass(frozen=True)
class Created:
    """The first event of a sweep.

    Args:
        spec: of the sweep, as `SweepSpec.to_dict` writes it.
        environment: git commit, package versions and hardware.
    """

    spec: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class SpecChanged:
    """The sweep goes on with another specification: a larger budget, another space."""

    spec: Mapping[str, Any]
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class Closed:
    """A controller has ended its run of the sweep.

    Args:
        state: "finished", "interrupted" or "failed"; see `Snapshot`.
        reason: why the sweep has ended, for a person.
    """

    state: str
    reason: str = ""
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class Proposed:
    """A configuration becomes a trial.

    Args:
        source: who proposed it; at: seconds since the sweep began.
        command: identity of the command that asked for it, so that no command runs twice.
        replicate_of: the first trial of the configuration, if it runs again with another seed.
    """

    trial: int
    params: Params
    source: str
    at: float = 0.0
    command: int | None = None
    replicate_of: int | None = None


@dataclass(frozen=True)
class Begun:
    """An attempt is about to go to the dispatcher, and takes this many slots."""

    trial: int
    attempt: int
    at: float = 0.0
    slots: int = 1


@dataclass(frozen=True)
class Ended:
    """An attempt is over.

    Args:
        outcome: as the worker or the dispatcher sent it.
        state: the trial's next state; waiting if it is tried again.
        failure, message: decided by the controller. They differ from the outcome's if, for example,
            a goal is not finite.
    """

    outcome: Outcome
    state: TrialState
    failure: str | None = None
    message: str = ""
    at: float = 0.0

    @property
    def trial(self) -> int:
        """Number of the trial."""
        return self.outcome.trial


@dataclass(frozen=True)
class Moved:
    """A trial changes state without an outcome: resumed, given up, or lost with its controller.

    Args:
        seconds: wall-clock seconds of the lost attempt.
    """

    trial: int
    state: TrialState
    reason: str = ""
    at: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Noted:
    """A note that changes no state: a stopper's decision, a suggester that failed."""

    kind: str
    message: str
    trial: int | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Command:
    """A command to a sweep, by a person or an agent. Its controller obeys it within a second.

    Args:
        kind: "limits", "enqueue", "stop" (the sweep), or a request that gets an `Answered`: of
            agents or of people (`control.steering`).
        content: of "limits", the new limit of each parameter (`suggesters.domain`), None to release
            it; of "enqueue", a configuration; of a request, its arguments.
        by: who has sent it.
        sent: seconds since 1970 on the clock of the store, which sets it.
    """

    kind: str
    content: Mapping[str, Any]
    trial: int | None = None
    at: float = 0.0
    by: str = ""
    sent: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Answered:
    """The answer to a request. It is committed together with what the request has changed.

    Args:
        command: identity of the request.
        content: what it asked for, or `error` and `status` if it was refused.
    """

    command: int
    content: Mapping[str, Any]
    trial: int | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Leased:
    """An agent holds the running attempt of a trial until its lease is over (`control.steering`).

    Args:
        agent: who holds it.
        seconds: that the lease lasts after each sign of life.
        until: when it is over, in seconds since 1970 on the clock of the store.
        asked: what the agent is asked to end the attempt by; None while it may go on.
        reason: why.
        held: a person has asked for a pause, so only a person resumes the trial.
    """

    trial: int
    attempt: int
    agent: str
    seconds: float
    until: float
    asked: StopRequest | None = None
    reason: str = ""
    at: float = 0.0
    held: bool = False


SweepEvent = (
    Created
    | SpecChanged
    | Closed
    | Proposed
    | Begun
    | Started
    | Report
    | Asked
    | Ended
    | Moved
    | Noted
    | Command
    | Answered
    | Leased
)
TrialEvent = Report | Asked | Proposed | Begun | Started | Ended | Moved | Leased  # of a trial
OF_TRIALS: Final = get_args(TrialEvent)  # of a tuple `isinstance` takes a fifth of the time
