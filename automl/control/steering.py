"""One door for requests: of people and of agents, programs elsewhere that run trials.

Each request gets one answer, committed with its effects; limits and a stop need none.
An agent holds a trial by a lease, which each of its reports renews. If the lease is over, the agent
counts as lost, and the trial is tried again by whoever asks next. A request is judged by the time
at which it was sent, so nobody loses a trial because its answer took long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from automl.core import Command, Trial, TrialState, arguments
from automl.core.events import Leased
from automl.core.resources import checked_budget, read_workers
from automl.core.spec import check_room
from automl.core.trial import AGENT
from automl.errors import AutomlError, UsageError
from workers.failures import bounded
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

from .journal import Journal
from .outcomes import ended
from .scheduler import Assigner, Scheduler, trained_before
from .shutdown import Shutdown

LEASE_SECONDS: Final = 60.0  # if neither the agent nor `timeout` of the sweep says how long
TakeIn = Callable[[Report | Outcome], None]


class Requests:
    """Answers each request once: those of people, and "ask", "report", "tell", "fail" of agents.

    Used from the controller's thread. What agents report and tell goes the way of what workers
    report, so budget, stopper and policy see no difference.

    Args:
        journal: of the sweep.
        scheduler: decides which trial an agent gets.
        shutdown: asks trials to stop, and knows which should.
        assigner: knows the parameters of an attempt.
        can_pause: whether a trial can go on from a checkpoint.
    """

    def __init__(
        self,
        journal: Journal,
        scheduler: Scheduler,
        shutdown: Shutdown,
        assigner: Assigner,
        *,
        can_pause: bool,
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._shutdown = shutdown
        self._assigner = assigner
        self._can_pause = can_pause

    def serve(self, take_in: TakeIn) -> bool:
        """Answer what can be answered; whether there was any.

        Args:
            take_in: takes a report or an outcome as if a worker had sent it.
        """
        self._scheduler.obey()
        found = list(self._journal.state.requests.items())
        # Agents that report go first, then those that are lost give their trials back.
        others = [self._serve(*one, take_in) for one in found if one[1].kind != "ask"]
        self._expire(take_in)
        asks = [self._serve(*one, take_in) for one in found if one[1].kind == "ask"]
        return any(others + asks)

    def _serve(self, number: int, command: Command, take_in: TakeIn) -> bool:
        """Answer a request, if only by why it cannot be done; False if it has to wait."""
        try:
            answer = self._answer(command, take_in)
        except AutomlError as error:
            answer = {"error": str(error), "usage": isinstance(error, UsageError)}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"the request {command.kind!r} is malformed: {type(error).__name__}: {error}"
            answer = {"error": text, "usage": True}
        if answer is not None:
            self._journal.answer(number, answer, command.trial)
        return answer is not None

    def _answer(self, command: Command, take_in: TakeIn) -> Mapping[str, Any] | None:
        """What has been done; None if it is not known yet.

        Raises:
            UsageError: there is no such trial, or no such command.
            AutomlError: it cannot be done in the present state of the trial or the sweep.
        """
        if command.kind in _OF_PEOPLE:
            return {"done": _OF_PEOPLE[command.kind](self, command)}
        if command.kind in _OF_AGENTS:
            return _OF_AGENTS[command.kind](self, command, take_in)
        raise UsageError(f"this version of automl does not know the request {command.kind!r}")

    # of agents

    def _ask(self, command: Command, take_in: TakeIn) -> Mapping[str, Any] | None:
        """A trial with its lease; None if it is not known yet.

        The trial is None, with a reason, if the sweep gives no more.
        """
        journal = self._journal
        if journal.clock() > command.sent + command.content["wait"]:
            raise AutomlError("nobody waits for this answer any more")
        trial = None
        if self._shutdown.request is None:
            trial = self._scheduler.next_trial()
            if trial is None and self._shutdown.request is None and not self._scheduler.is_done:
                return None
        if trial is None:
            reason = self._shutdown.reason or self._scheduler.reason_for_none
            running = len(journal.state.index.running)
            words = "1 trial still runs" if running == 1 else f"{running} trials still run"
            return {"trial": None, "reason": f"{reason}; {words}" if running else reason}
        begun = journal.begin(trial)
        seconds = command.content["seconds"] or journal.spec.timeout or LEASE_SECONDS
        journal.apply(Started(begun.number, begun.attempts, f"{AGENT}{command.by}"))
        until = journal.clock() + seconds
        journal.lease(Leased(begun.number, begun.attempts, command.by, seconds, until))
        assignment = self._assigner.assignment(begun)
        return {
            "trial": begun.number,
            "attempt": begun.attempts,
            "params": assignment.params,
            "seed": assignment.seed,
            "lease_seconds": seconds,
            "resumed": assignment.resume,
        }

    def _report(self, command: Command, take_in: TakeIn) -> Mapping[str, Any]:
        """Takes in a report and renews the lease; whether the trial should stop."""
        journal, content = self._journal, command.content
        trial = self._leased(command)
        number, attempt = trial.number, trial.attempts
        last = next((one for one in trial.reports[-1:] if one.attempt == attempt), None)
        step, metrics = content["step"], _numbers(content["metrics"])
        if last is not None and step < last.step:
            raise UsageError(f"step {step} of trial {number} cannot follow step {last.step}")
        lease = _lease(trial)
        journal.lease(replace(lease, until=journal.clock() + lease.seconds))
        if last is None or (last.step, last.metrics) != (step, metrics):
            sequence = last.sequence + 1 if last else 0
            seconds = metrics.get("seconds", math.nan)
            if not math.isfinite(seconds):
                seconds = trained_before(journal.spec, trial) + journal.seconds_running(trial)
            take_in(Report(number, attempt, sequence, step, metrics, seconds))
        now = journal.trials[number].lease
        stop, reason = (now.asked is not None, now.reason) if now else (True, "")
        return {"trial": number, "attempt": attempt, "stop": stop, "reason": reason}

    def _tell(self, command: Command, take_in: TakeIn) -> Mapping[str, Any]:
        """Ends an attempt with metrics or a failure. The same once more changes nothing."""
        journal, trial, content = self._journal, self._of(command), command.content
        failure = content.get("failure")
        metrics = {} if failure else _numbers(content["metrics"])
        known = trial.state in (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)
        known |= trial.failure == "non_finite"
        is_last = content["attempt"] in (None, trial.attempts)
        if is_last and (trial.failure == failure if failure else known):
            if repr({name: trial.metrics.get(name) for name in metrics}) == repr(metrics):
                return _result(trial, same=True)
            shown = " ".join(f"{name}={trial.metrics.get(name)}" for name in metrics)
            raise AutomlError(
                f"trial {trial.number} has ended already: it is {trial.state}, with {shown}"
            )
        trial = self._leased(command)
        lease = _lease(trial)
        peak = metrics.get("peak_memory_bytes", math.nan)
        outcome = Outcome(
            trial.number,
            trial.attempts,
            Ending.FAILED if failure else _ending(lease),
            metrics,
            failure,
            (bounded(content["message"]) if failure else "") or lease.reason,
            journal.seconds_running(trial),
            int(peak) if math.isfinite(peak) else None,
            held=lease.held,
        )
        event = ended(journal.spec, trial, outcome, journal.now)
        if event.failure == "missing_metric" and not failure:
            raise UsageError(event.message)
        take_in(outcome)
        return _result(journal.trials[trial.number], same=False)

    def _expire(self, take_in: TakeIn) -> None:
        """Give back the trials whose agents have not shown any sign of life for too long."""
        journal, clock = self._journal, self._journal.clock()
        for trial in journal.state.index.leased:
            lease = _lease(trial)
            if clock <= lease.until:
                continue
            reason = f"{lease.reason}; its agent {lease.agent} was lost"
            message = f"its agent {lease.agent} was lost: no report for {lease.seconds:g} s"
            outcome = Outcome(
                trial.number,
                trial.attempts,
                _ending(lease) if lease.asked else Ending.FAILED,
                failure=None if lease.asked else "crashed",
                message=reason if lease.asked else message,
                seconds=journal.seconds_running(trial),
                worker_lost=lease.asked is None,
                held=lease.held,
            )
            take_in(outcome)

    def _of(self, command: Command) -> Trial:
        trials = self._journal.trials
        if command.trial is None or not 0 <= command.trial < len(trials):
            raise UsageError(f"there is no trial {command.trial}: there are {len(trials)}")
        return trials[command.trial]

    def _leased(self, command: Command) -> Trial:
        """The trial of a request, which an agent holds; raises AutomlError if none does."""
        trial, attempt = self._of(command), command.content["attempt"]
        lease, over = trial.lease, ""
        which = f"attempt {attempt} of trial {trial.number}" if attempt else f"trial {trial.number}"
        if lease is None:
            over = f"the trial is {trial.state}, after {trial.attempts} attempts"
        elif attempt not in (None, trial.attempts):
            over = f"the trial runs attempt {trial.attempts} with agent {lease.agent}"
        elif _is_foreign(command, lease):
            raise AutomlError(
                f"{which} is held by agent {lease.agent!r}, not by {command.by!r}: give the name "
                "under which it was asked for, or the attempt that came with it"
            )
        elif command.sent > lease.until:
            ago = command.sent - lease.until
            over = f"it ended {ago:.3g} s ago, after {lease.seconds:g} s"
        if over:
            raise AutomlError(
                f"the lease of {which} is over: {over}. Report more often, or ask with a longer "
                "--lease"
            )
        return trial

    # of people

    def _stop(self, command: Command) -> str:
        trial, by = self._of(command), command.by
        if trial.state.finished:
            raise AutomlError(f"trial {trial.number} is {trial.state} already")
        if trial.state is TrialState.RUNNING:
            self._shutdown.stop_trial(trial, StopRequest.STOP, f"stopped by {by}")
            return f"trial {trial.number} stops at its next report"
        self._journal.move(trial, TrialState.STOPPED, f"stopped by {by}")
        return f"trial {trial.number} is stopped"

    def _pause(self, command: Command) -> str:
        trial, by = self._of(command), command.by
        if trial.state is not TrialState.RUNNING:
            raise AutomlError(
                f"trial {trial.number} is {trial.state}: only a running one can pause"
            )
        if not self._can_pause:
            raise AutomlError(
                f"trial {trial.number} cannot pause: its objective does not go on from a "
                "checkpoint (resumable: true). Stop it instead"
            )
        self._shutdown.stop_trial(trial, StopRequest.PAUSE, f"paused by {by}", held=True)
        return f"trial {trial.number} pauses at its next report"

    def _resume(self, command: Command) -> str:
        trial, by = self._of(command), command.by
        if trial.state not in (TrialState.PAUSED, TrialState.INTERRUPTED):
            raise AutomlError(
                f"trial {trial.number} is {trial.state}: only a paused one can be resumed"
            )
        self._check_open()
        self._journal.move(trial, TrialState.WAITING, f"resumed by {by}")
        return f"trial {trial.number} goes on next"

    def _set_budget(self, command: Command) -> str:
        budget = checked_budget(replace(self._journal.spec.budget, **command.content))
        self._shutdown.reopen()
        self._check_open()
        self._journal.specify(replace(self._journal.spec, budget=budget))
        self._scheduler.respecify(self._journal.spec)
        given = {name: value for name, value in vars(budget).items() if value is not None}
        shown = [f"{name} {v if isinstance(v, str) else f'{v:g}'}" for name, v in given.items()]
        return f"the budget is now: {', '.join(shown) or 'without end'}"

    def _scale(self, command: Command) -> str:
        workers = read_workers(dict(command.content))
        assert workers is not None, "a mapping is a range"
        check_room(self._journal.spec, workers.max)
        self._journal.dispatcher.scale(workers)
        self._journal.specify(replace(self._journal.spec, workers=workers))
        return f"the sweep has {workers} workers from now on"

    def _check_open(self) -> None:
        """Raise AutomlError if the sweep begins no more trials."""
        if self._shutdown.request is not None:
            raise AutomlError(
                f"the sweep begins no more trials: {self._shutdown.reason}. Raise its budget first"
            )


def _is_foreign(command: Command, lease: Leased) -> bool:
    """Whether an agent speaks for another's trial.

    Who gives the attempt has been told it. But a name that an agent chose itself must be right;
    the others, USER@HOST and agent@HOST, have an `@`.
    """
    chosen = "@" not in command.by and "@" not in lease.agent
    return command.by != lease.agent and (chosen or command.content["attempt"] is None)


def _lease(trial: Trial) -> Leased:
    assert trial.lease is not None
    return trial.lease


def _ending(lease: Leased) -> Ending:
    """The ending of an attempt whose agent did what it was asked to do."""
    return lease.asked.ending if lease.asked else Ending.COMPLETED


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics that have been through JSON, where "nan" and "inf" are texts."""
    return arguments.numbers({name: float(value) for name, value in metrics.items()})


def _result(trial: Trial, *, same: bool) -> Mapping[str, Any]:
    return {
        "trial": trial.number,
        "attempt": trial.attempts,
        "state": str(trial.state),
        "failure": trial.failure,
        "message": trial.message,
        "same": same,
    }


_OF_AGENTS: Final[Mapping[str, Callable[[Requests, Command, TakeIn], Mapping[str, Any] | None]]] = {
    "ask": Requests._ask,
    "report": Requests._report,
    "tell": Requests._tell,
    "fail": Requests._tell,
}
_OF_PEOPLE: Final[Mapping[str, Callable[[Requests, Command], str]]] = {
    "budget": Requests._set_budget,
    "scale": Requests._scale,
    "stop_trial": Requests._stop,
    "pause_trial": Requests._pause,
    "resume_trial": Requests._resume,
}
