"""One door for requests of people and agents, and how a trial or the whole sweep is asked to end.

Each request gets one answer, committed with its effects; limits and a stop need none.
An agent, a program elsewhere, holds a trial by a lease, which each of its reports renews. If the
lease is over, the agent counts as lost, and the trial is tried again by whoever asks next. A
request is judged by the time at which it was sent, so nobody loses a trial because its answer took
long.

A sweep ends, or begins no new trial, for these reasons only:

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| no trial has a metric that a constraint bounds | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
| the first signal (Ctrl-C, SIGTERM), a suggester that fails | running trials are interrupted |

An interrupted sweep can be resumed. At the second signal, or after 30 s, running trials are killed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final

from automl.core import (
    AGENT,
    GRACE_SECONDS,
    Command,
    Leased,
    SweepState,
    Trial,
    TrialState,
    arguments,
    check_room,
    checked_budget,
    read_workers,
)
from automl.core.text import mistake_hint
from automl.errors import AutomlError, UsageError
from workers.failures import bounded
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

from .machine import StopSignals
from .outcomes import Journal, ended
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
        missing = event.message if event.failure == "missing_metric" and not failure else ""
        goals = [goal.metric for goal in journal.spec.goals]
        near = [f"{one} is no goal" for one in metrics if get_close_matches(one, goals, 1, 0.8)]
        if missing or (near and not {*goals} & {*metrics}):  # an earlier report would count
            raise UsageError(missing or f"{' and '.join(near)}; a goal is {' or '.join(goals)}")
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
        which, runs = f"trial {trial.number}", trial.state is TrialState.RUNNING
        _check(runs, f"{which} is {trial.state}: only a running one can pause")
        _check(
            self._can_pause,
            f"{which} cannot pause: its objective does not go on from a checkpoint "
            "(resumable: true). Stop it instead",
        )
        self._shutdown.stop_trial(trial, StopRequest.PAUSE, f"paused by {by}", held=True)
        lost = "; it stops if it has saved nothing" if self._journal.spec.origin.command else ""
        return _done(f"{which} pauses at its next report{lost}")

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


MAX_ALIKE: Final = 3  # failures, if nothing has succeeded
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def reason_of_failures(state: SweepState, failed: Trial, since: float) -> str:
    """Why the sweep must end after this trial, if failures like it are all that has come so far.

    A success since the first of them is an answer, except to a kill from outside or a full disk. A
    trial that runs may still succeed if it has reported, or has outlived a later one.

    Args:
        since: when this run of the sweep began; earlier failures do not count.
    """
    outside, succeeded = failed.ended_from_outside, any(map(_has_succeeded, state.trials))
    mistake = failed.is_mistake and not succeeded
    if failed.state is not TrialState.FAILED or not (mistake or outside):
        return ""
    ended = [trial for trial in state.trials if trial.ended is not None and trial.ended >= since]
    ended.sort(key=lambda trial: trial.ended or 0.0, reverse=True)
    row = takewhile(lambda trial: not _has_succeeded(trial), ended)
    same = [one for one in row if one.state is TrialState.FAILED and one.error == failed.error]
    alike = sum(trial.attempts if trial.died_by_itself else 1 for trial in same)
    running = state.index.running
    if alike < MAX_ALIKE or any(one.reports or one.number < failed.number for one in running):
        return ""
    failures = "attempts" if failed.died_by_itself else "trials"
    between = " in between" if succeeded else ""
    words = f"{alike} {failures} failed alike and none succeeded{between}"
    return f"{words}: {failed.message}. {mistake_hint(failed)}".rstrip()


def reason_of_constraints(state: SweepState) -> str:
    """Why it must end if the first completed trials lack a metric that a constraint bounds.

    A trial that was imported says nothing.
    """
    first = [one for one in state.trials if one.state is TrialState.COMPLETED and one.seconds > 0]
    known = {name for trial in first for name in trial.metrics}
    lacking = [str(one) for one in state.spec.constraints if one.metric not in known]
    return (
        f"{MAX_ALIKE} trials have completed, and none has the metric of the constraint "
        f"{lacking[0]}; they have {', '.join(sorted(known))}"
        if lacking and len(first) == MAX_ALIKE
        else ""
    )


def _has_succeeded(trial: Trial) -> bool:
    # A trial that was imported or never began says nothing.
    return trial.state in _SUCCESSES and trial.seconds > 0


class Shutdown:
    """Asks trials to stop, one or all, and leaves each in the right state.

    Args:
        journal: of the sweep.
        taken: number of the last record when the sweep was taken.
        signals: count the signals that ask the sweep to stop.

    Attributes:
        request: how the sweep is ending; None while it goes on.
        reason: why.
    """

    def __init__(self, journal: Journal, taken: int, signals: StopSignals) -> None:
        self._journal, self._signals = journal, signals
        self._taken, self._began = taken, journal.now
        # Of running trials that were asked to stop: why, and whether a person has asked to pause.
        self._asked: dict[int, tuple[str, bool]] = {}
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self.request: StopRequest | None = None
        self.reason = ""

    def check(self) -> None:
        """Begin to end the sweep if it must end; kill running trials if they take too long."""
        journal = self._journal
        if self._signals.count and self.request is not StopRequest.INTERRUPT:
            self._begin(StopRequest.INTERRUPT, "interrupted")
        asked = journal.state.stop_number > self._taken  # not before this run of the sweep
        reason = journal.state.reason_to_end(journal.now)
        self.end("it was asked to stop" if asked else reason)
        if self._signals.count > 1 or time.monotonic() > self._deadline:
            message = "ended by force, together with the sweep"
            for trial in journal.state.index.running:
                if trial.lease is None:
                    journal.dispatcher.kill(trial.number, trial.attempts, "preempted", message)
                elif self.request is StopRequest.STOP:
                    journal.move(trial, TrialState.STOPPED, "its agent has not ended it in time")

    def stay(self) -> None:
        """The sweep is finished already, and is held only to answer agents and people."""
        self.request = StopRequest.STOP
        self.reason = "it is finished"

    def reopen(self) -> None:
        """A sweep that is finished, or about to be, goes on; an interrupted one does not."""
        if self.request is StopRequest.STOP:
            self.request, self.reason, self._deadline = None, "", math.inf

    def end(self, reason: str) -> None:
        """Finish the sweep if there is a reason, unless it is ending already."""
        if reason and self.request is None:
            self._begin(StopRequest.STOP, reason)

    def end_after(self, ended: Trial) -> None:
        """Finish the sweep if a trial that has ended is one failure too many."""
        self.end(
            reason_of_failures(self._journal.state, ended, self._began)
            or reason_of_constraints(self._journal.state)
        )

    def fail(self, error: AutomlError) -> None:
        """End the sweep by this error, which `finish` raises."""
        self._error = error
        self._begin(StopRequest.INTERRUPT, str(error))

    def stop_trial(
        self, trial: Trial, how: StopRequest, reason: str, *, held: bool = False
    ) -> None:
        """Ask a running trial to stop.

        Args:
            held: a person asks for a pause, so only a person resumes the trial.
        """
        journal = self._journal
        if trial.lease is not None:  # its agent learns it with its next report
            lease = replace(trial.lease, asked=how, reason=reason, held=held, at=journal.now)
            journal.apply(lease)
            return
        self._asked[trial.number] = (reason, held)
        journal.then(lambda: journal.dispatcher.stop(trial.number, trial.attempts, how))

    def is_stopping(self, trial: Trial) -> bool:
        """Whether a running trial was asked to stop."""
        return trial.number in self._asked or bool(trial.lease and trial.lease.asked)

    def explain(self, outcome: Outcome) -> Outcome:
        """The outcome of a trial that was asked to stop, with the reason as its message."""
        reason, held = self._asked.pop(outcome.trial, ("", False))
        held = outcome.held or (held and outcome.ending is Ending.PAUSED)
        obeyed = outcome.ending in (Ending.STOPPED, Ending.PAUSED)
        said = "; ".join(filter(None, (reason if obeyed else "", outcome.message)))
        return replace(outcome, message=said, held=held)

    def finish(self, reason: str) -> None:
        """Nothing runs any more: close the journal, with final states unless it can be resumed.

        Args:
            reason: why no trial begins, if nothing else has ended the sweep.

        Raises:
            AutomlError: the error that has ended the sweep.
        """
        if self._error is not None:
            raise self._error
        if self.request is StopRequest.INTERRUPT:
            self._journal.close("interrupted", self.reason)
            return
        for trial in list(self._journal.trials):
            if not trial.state.finished and trial.lease is None:
                self._journal.move(trial, TrialState.STOPPED, "the sweep has ended")
        self._journal.close("finished", self.reason or reason)

    def abandon(self, state: str, reason: str) -> None:
        """The controller fails: record that it is gone, if the ledger can still be written to."""
        with suppress(AutomlError):
            for trial in self._journal.state.index.running:
                if trial.lease is None:
                    self._journal.move(trial, TrialState.INTERRUPTED, "its controller failed")
            self._journal.close(state, reason)

    def _begin(self, how: StopRequest, reason: str) -> None:
        self.request = how
        self.reason = reason
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._journal.note("end", reason)
        for trial in self._journal.state.index.running:
            if trial.lease is None or how is StopRequest.STOP:  # agents go on without a controller
                self.stop_trial(trial, how, reason)
