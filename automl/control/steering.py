"""One door for requests: of people and of agents, programs elsewhere that run trials.

Each request gets one answer, committed with its effects; limits and a stop need none.
An agent holds a trial by a lease, which each of its reports renews. If the lease is over, the agent
counts as lost, and the trial is tried again by whoever asks next. A request is judged by the time
at which it was sent, so nobody loses a trial because its answer took long.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from automl.core import (
    AGENT,
    Command,
    Leased,
    Trial,
    TrialState,
    arguments,
    check_room,
    checked_budget,
    read_workers,
)
from automl.errors import AutomlError, UsageError
from workers.failures import bounded
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

from .outcomes import Journal, Shutdown, ended
from .scheduler import Scheduler, trained_before

LEASE_SECONDS: Final = 60.0  # if neither the agent nor `timeout` of the sweep says how long
Answer = Mapping[str, Any]


class Requests:
    """Answers each request once: those of people, and "ask", "report", "tell", "fail" of agents.

    Used from the controller's thread. What agents report and tell goes the way of what workers
    report, so budget, stopper and policy see no difference.

    Args:
        journal: of the sweep.
        scheduler: decides which trial an agent gets.
        shutdown: asks trials to stop, and knows which should.
        take_in: takes a report or an outcome as if a worker had sent it.
        can_pause: whether a trial can go on from a checkpoint.
    """

    def __init__(
        self,
        journal: Journal,
        scheduler: Scheduler,
        shutdown: Shutdown,
        take_in: Callable[[Report | Outcome], None],
        *,
        can_pause: bool,
    ) -> None:
        self._journal, self._scheduler, self._shutdown = journal, scheduler, shutdown
        self._take_in, self._can_pause = take_in, can_pause

    def serve(self) -> bool:
        """Answer what can be answered; whether there was any."""
        self._scheduler.obey()
        found = list(self._journal.state.requests.items())
        # Agents that report go first, then those that are lost give their trials back.
        others = [self._serve(*one) for one in found if one[1].kind != "ask"]
        self._expire()
        asks = [self._serve(*one) for one in found if one[1].kind == "ask"]
        return any(others + asks)

    def _serve(self, number: int, command: Command) -> bool:
        """Answer a request, if only by why it cannot be done; False if it has to wait."""
        answer: Answer | None
        try:
            if command.kind not in _KINDS:
                raise UsageError(f"this automl does not know the request {command.kind!r}")
            answer = _KINDS[command.kind](self, command)
        except AutomlError as error:
            answer = {"error": str(error), "usage": isinstance(error, UsageError)}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"the request {command.kind!r} is malformed: {type(error).__name__}: {error}"
            answer = {"error": text, "usage": True}
        if answer is not None:
            self._journal.answer(number, answer, command.trial)
        return answer is not None

    # What each request does: the answer, None if it is not known yet. UsageError means that there
    # is no such trial, AutomlError that it cannot be done in the present state.

    # of agents

    def _ask(self, command: Command) -> Answer | None:
        """A trial with its lease; None if it is not known yet.

        The trial is None, with a reason, if the sweep gives no more.
        """
        journal = self._journal
        waits = journal.hold.clock() <= command.sent + command.content["wait"]
        _check(waits, "nobody waits for this answer any more")
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
        until = journal.hold.clock() + seconds
        lease = Leased(begun.number, begun.attempts, command.by, seconds, until, at=journal.now)
        journal.apply(lease)
        assignment = self._scheduler.assigner.assignment(begun)
        return {
            "trial": begun.number,
            "attempt": begun.attempts,
            "params": assignment.params,
            "seed": assignment.seed,
            "lease_seconds": seconds,
            "resumed": assignment.resume,
        }

    def _report(self, command: Command) -> Answer:
        """Takes in a report and renews the lease; whether the trial should stop."""
        journal, content = self._journal, command.content
        trial, lease = self._leased(command)
        number, attempt = trial.number, trial.attempts
        last = next((one for one in trial.reports[-1:] if one.attempt == attempt), None)
        step, metrics = content["step"], _numbers(content["metrics"])
        if last is not None and step < last.step:
            raise UsageError(f"step {step} of trial {number} cannot follow step {last.step}")
        until = journal.hold.clock() + lease.seconds
        journal.apply(replace(lease, until=until, at=journal.now))
        if last is None or (last.step, last.metrics) != (step, metrics):
            sequence = last.sequence + 1 if last else 0
            seconds = metrics.get("seconds", math.nan)
            if not math.isfinite(seconds):
                seconds = trained_before(journal.spec, trial) + journal.seconds_running(trial)
            self._take_in(Report(number, attempt, sequence, step, metrics, seconds))
        now = journal.trials[number].lease
        stop, reason = (now.asked is not None, now.reason) if now else (True, "")
        return {"trial": number, "attempt": attempt, "stop": stop, "reason": reason}

    def _tell(self, command: Command) -> Answer:
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
        trial, lease = self._leased(command)
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
        self._take_in(outcome)
        return _result(journal.trials[trial.number], same=False)

    def _expire(self) -> None:
        """Give back the trials whose agents have not shown any sign of life for too long."""
        clock = self._journal.hold.clock()
        for trial, lease in self._journal.state.index.leased:
            if clock > lease.until:
                silent = f"no report for {lease.seconds:g} s"
                outcome = Outcome(
                    trial.number,
                    trial.attempts,
                    _ending(lease) if lease.asked else Ending.FAILED,
                    failure=None if lease.asked else "crashed",
                    message=f"{lease.reason or silent}; its agent {lease.agent} was lost",
                    seconds=self._journal.seconds_running(trial),
                    worker_lost=lease.asked is None,
                    held=lease.held,
                )
                self._take_in(outcome)

    def _of(self, command: Command) -> Trial:
        trials = self._journal.trials
        if command.trial is None or not 0 <= command.trial < len(trials):
            raise UsageError(f"there is no trial {command.trial}: there are {len(trials)}")
        return trials[command.trial]

    def _leased(self, command: Command) -> tuple[Trial, Leased]:
        """The trial of a request, and the lease of its agent; AutomlError if there is none."""
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
        if lease is None or over:
            raise AutomlError(
                f"the lease of {which} is over: {over}. Report more often, or ask with a longer "
                "--lease"
            )
        return trial, lease

    # of people

    def _stop(self, command: Command) -> Answer:
        trial, by = self._of(command), command.by
        _check(not trial.state.finished, f"trial {trial.number} is {trial.state} already")
        if trial.state is TrialState.RUNNING:
            self._shutdown.stop_trial(trial, StopRequest.STOP, f"stopped by {by}")
            return _done(f"trial {trial.number} stops at its next report")
        self._journal.move(trial, TrialState.STOPPED, f"stopped by {by}")
        return _done(f"trial {trial.number} is stopped")

    def _pause(self, command: Command) -> Answer:
        trial, by = self._of(command), command.by
        which = f"trial {trial.number} is {trial.state}: only a running one can pause"
        _check(trial.state is TrialState.RUNNING, which)
        why = "its objective does not go on from a checkpoint (resumable: true). Stop it instead"
        _check(self._can_pause, f"trial {trial.number} cannot pause: {why}")
        self._shutdown.stop_trial(trial, StopRequest.PAUSE, f"paused by {by}", held=True)
        return _done(f"trial {trial.number} pauses at its next report")

    def _resume(self, command: Command) -> Answer:
        trial, by = self._of(command), command.by
        rests = trial.state in (TrialState.PAUSED, TrialState.INTERRUPTED)
        which = f"trial {trial.number} is {trial.state}: only a paused one can be resumed"
        _check(rests, which)
        self._check_open()
        self._journal.move(trial, TrialState.WAITING, f"resumed by {by}")
        return _done(f"trial {trial.number} goes on next")

    def _set_budget(self, command: Command) -> Answer:
        budget = checked_budget(replace(self._journal.spec.budget, **command.content))
        self._shutdown.reopen()
        self._check_open()
        self._journal.specify(replace(self._journal.spec, budget=budget))
        self._scheduler.respecify(self._journal.spec)
        shown = [
            f"{name} {value if isinstance(value, str) else f'{value:g}'}"
            for name, value in vars(budget).items()
            if value is not None
        ]
        return _done(f"the budget is now: {', '.join(shown) or 'without end'}")

    def _scale(self, command: Command) -> Answer:
        workers = read_workers(dict(command.content))
        assert workers is not None, "a mapping is a range"
        check_room(self._journal.spec, workers.max)
        self._journal.dispatcher.scale(workers)
        self._journal.specify(replace(self._journal.spec, workers=workers))
        return _done(f"the sweep has {workers} workers from now on")

    def _check_open(self) -> None:
        """Raise AutomlError if the sweep begins no more trials."""
        why = f"the sweep begins no more trials: {self._shutdown.reason}. Raise its budget first"
        _check(self._shutdown.request is None, why)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AutomlError(otherwise)


def _is_foreign(command: Command, lease: Leased) -> bool:
    """Whether an agent speaks for another's trial.

    Who gives the attempt has been told it. But a name that an agent chose itself must be right;
    the others, USER@HOST and agent@HOST, have an `@`.
    """
    chosen = "@" not in command.by and "@" not in lease.agent
    return command.by != lease.agent and (chosen or command.content["attempt"] is None)


def _ending(lease: Leased) -> Ending:
    # Its agent did what it was asked to do.
    return lease.asked.ending if lease.asked else Ending.COMPLETED


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    # Through JSON "nan" and "inf" came as texts.
    return arguments.numbers({name: float(value) for name, value in metrics.items()})


def _done(text: str) -> Answer:
    return {"done": text}


def _result(trial: Trial, *, same: bool) -> Answer:
    return {
        "trial": trial.number,
        "attempt": trial.attempts,
        "state": str(trial.state),
        "failure": trial.failure,
        "message": trial.message,
        "same": same,
    }


_KINDS: Final[Mapping[str, Callable[[Requests, Command], Answer | None]]] = {
    "ask": Requests._ask,
    "report": Requests._report,
    "tell": Requests._tell,
    "fail": Requests._tell,
    "budget": Requests._set_budget,
    "scale": Requests._scale,
    "stop_trial": Requests._stop,
    "pause_trial": Requests._pause,
    "resume_trial": Requests._resume,
}
