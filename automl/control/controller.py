"""The loop: suggest, record, submit; take events, record, decide."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from automl.core.events import Begun, Ended, Moved, Proposed
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from automl.stopping._probes import Probes
from automl.stopping.base import Decision, Stopper
from automl.suggesters.queue import Suggestions
from workers.protocol import Ending, Event, Halt, Outcome, Report

from .assignments import Assigner
from .checkpoint_cleanup import Checkpoints
from .commands import Wishes
from .journal import Journal
from .memory_guard import Forecasts
from .outcome_policy import judge
from .signals import Attention

SOON_SECONDS: Final = 0.005  # while a free slot waits for a suggestion
PATIENCE: Final = 0.1  # of an attempt's seconds: how long a worker waits for the suggester
MOST_WAITING: Final = 2  # trials that wait behind one that waits for more slots
GRACE_SECONDS: Final = 30.0  # for a trial that was asked to end
_MANY: Final = 2**31
T = TypeVar("T")


class Controller:
    """Runs one sweep. Used from one thread.

    Args:
        journal: of the sweep.
        suggestions: where proposals come from.
        stopper: decides after each report.
        assigner: makes assignments.
        attention: counts the signals that ask the sweep to end.
        forecasts: what trials are expected to need; one that needs far too much is not dispatched.
    """

    def __init__(
        self,
        journal: Journal,
        suggestions: Suggestions,
        stopper: Stopper,
        assigner: Assigner,
        attention: Attention,
        forecasts: Forecasts,
    ) -> None:
        self._journal, self._suggestions, self._stopper, self._forecasts = (
            journal,
            suggestions,
            stopper,
            forecasts,
        )
        self._assigner, self._attention = assigner, attention
        self._checkpoints = Checkpoints(journal.spec, assigner.folder)
        self._probes = Probes(journal.spec.goals, journal.spec.constraints)
        self._wishes = Wishes(journal, suggestions)
        self._asked: dict[int, str] = {}  # trials that were asked to end, and why
        self._bypassed: Counter[int] = (
            Counter()
        )  # how often others began before a trial that waits for more slots
        self._ending: Halt | None = None
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self._satisfied = False  # nothing worth a trial is left

    def run(self, start: Callable[[], Dispatcher]) -> Snapshot:
        """Run the sweep until it ends.

        Args:
            start: makes the dispatcher; suggestions are being made meanwhile.

        Raises:
            AutomlError: the sweep cannot go on; what ran is interrupted and can be resumed.
        """
        journal = self._journal
        try:
            self._recover()
            self._propose_default()
            self._wishes.take()
            self._foresee()
            journal.flush()
            self._suggestions.prepare(journal.history, self._trials_left(), math.inf)
            journal.dispatcher = start()
            self._loop(journal.dispatcher)
            self._close()
        except BaseException as error:
            self._abandon("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        finally:
            self._suggestions.close()
            self._forecasts.close()
            if journal.dispatcher is not None:
                journal.dispatcher.close()
        return journal.snapshot()

    def _loop(self, dispatcher: Dispatcher) -> None:
        while True:
            self._check(dispatcher)
            self._wishes.take()
            self._fill(dispatcher)
            self._journal.flush()
            if self._is_over():
                return
            dispatcher.poll(
                lambda event: self._handle(event, dispatcher), self._patience(dispatcher)
            )

    def _is_over(self) -> bool:
        history = self._journal.history
        if history.num_running:
            return False
        if self._ending is not None:
            return True
        return history.next_waiting is None and (
            self._trials_left() == 0 or self._suggestions.exhausted
        )

    def _patience(self, dispatcher: Dispatcher) -> float:
        wants = self._ending is None and dispatcher.free_slots > 0 and self._trials_left() > 0
        if wants and dispatcher.suggests_ahead and not self._suggestions.exhausted:
            return SOON_SECONDS
        left = self._journal.accounts.seconds_left(self._journal.now)
        return min(dispatcher.patience, max(left, SOON_SECONDS))

    # ------------------------------------------------------------------ what is run next

    def _recover(self) -> None:
        """Take up again what an earlier controller left behind."""
        journal = self._journal
        journal.watch = self._stopper.observe
        for trial in list(journal.trials):
            journal.accounts.recall(trial, self._assigner.slots(trial.params))
            self._stopper.observe(trial)
            if trial.state is TrialState.RUNNING:
                self._interrupt(trial, "its controller was lost")
            if journal.trials[trial.number].state is TrialState.INTERRUPTED:
                journal.apply(Moved(trial.number, TrialState.WAITING, "resumed", journal.now))

    def _interrupt(self, trial: Trial, reason: str) -> None:
        now = self._journal.now
        seconds = max(0.0, now - self._journal.begun(trial))
        self._journal.apply(Moved(trial.number, TrialState.INTERRUPTED, reason, now, seconds))
        self._journal.accounts.worker_seconds += seconds * self._assigner.slots(trial.params)

    def _propose_default(self) -> None:
        default = self._journal.spec.space.default()
        if not self._journal.trials and default is not None and self._trials_left():
            self._journal.apply(Proposed(0, default, "default", self._journal.now))

    def _foresee(self) -> None:
        """Have the memory of what will be dispatched next estimated while workers train, or the dispatcher starts."""
        first = self._journal.history.next_waiting or next(iter(self._suggestions.ready), None)
        if first is not None:
            self._forecasts.settled(first.params, self._assigner.slots(first.params))

    def _fill(self, dispatcher: Dispatcher) -> None:
        """Give the free slots something to do."""
        if self._ending is not None:
            return
        free = dispatcher.free_slots
        while free > 0 and (trial := self._next_trial(free)) is not None:
            large, slots = trial, self._needs(trial, dispatcher)
            if slots > free:
                small = self._fitting(large, free, dispatcher)
                if small is None:
                    break
                trial, slots = small, self._needs(small, dispatcher)
            if slots and not self._forecasts.settled(trial.params, slots):
                break  # a moment later
            if trial is not large:
                self._bypassed[large.number] += 1
            self._begin(trial, dispatcher)
            free -= slots
        accounts = self._journal.accounts
        period, patience = accounts.period(dispatcher.num_slots), PATIENCE * accounts.trial_seconds
        self._suggestions.prepare(self._journal.history, self._trials_left(), period, patience)
        self._foresee()

    def _needs(self, trial: Trial, dispatcher: Dispatcher) -> int:
        """Slots; what needs more than there are fails as soon as it begins."""
        slots = self._assigner.slots(trial.params)
        return slots if slots <= dispatcher.num_slots else 0

    def _fitting(self, large: Trial, free: int, dispatcher: Dispatcher) -> Trial | None:
        """A trial for slots that are too few for the one whose turn it is, which lets so many others pass and no more.

        It is one that waits, or a new one; of those that must wait as well only a few are proposed.
        """
        if self._bypassed[large.number] >= dispatcher.num_slots:
            return None
        others = [trial for trial in self._journal.history.waiting if trial.number != large.number]
        if len(others) < MOST_WAITING and self._trials_left() and not self._suggestions.exhausted:
            self._propose(1)
            others = [
                trial for trial in self._journal.history.waiting if trial.number != large.number
            ]
        return next((trial for trial in others if self._needs(trial, dispatcher) <= free), None)

    def _next_trial(self, free: int) -> Trial | None:
        """The next waiting trial: one that was tried before, else a paused one, else a new one."""
        journal = self._journal
        waiting = journal.history.next_waiting
        if waiting is not None:
            return waiting
        left = 0 if self._suggestions.exhausted else self._trials_left()
        self._tell_budget()
        resumed = self._thinking(lambda: self._stopper.resume(journal.trials, last=left == 0))
        if resumed is not None:
            if journal.trials[resumed[0]].state is not TrialState.PAUSED:
                raise AutomlError(f"the stopper resumes trial {resumed[0]}, which is not paused")
            return journal.apply(Moved(resumed[0], TrialState.WAITING, resumed[1], journal.now))
        one = journal.spec.workload is not None or self._stopper.one_by_one
        if left > 0:
            self._propose(min(left, 1 if one else free))
        return journal.history.next_waiting

    def _propose(self, count: int) -> None:
        journal = self._journal
        self._wishes.take(look=True)
        if self._stopper.guided:
            chosen = self._thinking(lambda: self._stopper.propose(journal.trials))
            if chosen is not None and self._wishes.allows(chosen):
                journal.apply(
                    Proposed(len(journal.trials), chosen, self._stopper.name, journal.now)
                )
                return
        try:
            proposals = self._thinking(lambda: self._suggestions.take(journal.history, count))
        except AutomlError as error:
            self._error = error
            self._end(Halt.INTERRUPT, str(error))
            return
        for proposal in proposals:
            journal.apply(
                Proposed(len(journal.trials), proposal.params, proposal.source, journal.now)
            )

    def _tell_budget(self) -> None:
        journal = self._journal
        self._stopper.update_budget(
            journal.accounts.spent(journal.now, len(journal.trials)),
            journal.accounts.seconds_left(journal.now),
        )

    def _thinking(self, thought: Callable[[], T]) -> T:
        """Take the thought's time off the dispatcher's clock, where that is a virtual one."""
        begun = time.perf_counter()
        found = thought()
        if self._journal.dispatcher is not None:
            self._journal.dispatcher.spend(time.perf_counter() - begun)
        return found

    def _begin(self, trial: Trial, dispatcher: Dispatcher) -> None:
        journal, slots = self._journal, self._assigner.slots(trial.params)
        begun = journal.apply(Begun(trial.number, trial.attempts + 1, journal.now))
        if begun is None:
            raise AutomlError(f"trial {trial.number} was begun twice")
        if slots > dispatcher.num_slots:
            message = f"the configuration takes {slots} slots, there are {dispatcher.num_slots}"
            journal.apply(Ended.failed(begun, "crashed", message, journal.now))
            return
        if message := self._forecasts.refusal(trial.params, slots):
            details = self._forecasts.details(trial.params)
            journal.apply(Ended.failed(begun, "out_of_memory", message, journal.now, details))
            return
        journal.accounts.begin(trial.number, journal.now, slots)
        assignment = self._assigner.assignment(begun)
        journal.then(lambda: dispatcher.submit(assignment))

    def _trials_left(self) -> int:
        gain = self._journal.spec.budget.gain
        if not self._suggestions.worth(gain):
            if not self._satisfied:
                self._satisfied = True
                self._journal.note(
                    "end", f"another trial is expected to gain less than {gain or 0.0:g}"
                )
            return 0
        left = self._journal.accounts.trials_left(len(self._journal.trials))
        return _MANY if left is None else left

    # ------------------------------------------------------------------ what comes back

    def _handle(self, event: Event, dispatcher: Dispatcher) -> None:
        self._check(dispatcher)  # an outcome means something else when the sweep is ending
        if isinstance(event, Outcome):
            self._on_outcome(event)
        elif (trial := self._journal.apply(event)) is not None and isinstance(event, Report):
            self._on_report(trial)
        if dispatcher.commits_each:
            self._check(dispatcher)
            self._journal.flush()

    def _on_outcome(self, outcome: Outcome) -> None:
        journal, spec = self._journal, self._journal.spec
        trial = journal.trials[outcome.trial]
        if trial.state is not TrialState.RUNNING or trial.attempts != outcome.attempt:
            return  # late: the attempt is over already
        why = self._asked.pop(trial.number, "")
        if not outcome.message and outcome.ending in (Ending.STOPPED, Ending.PAUSED):
            outcome = replace(outcome, message=why)
        outcome = self._forecasts.beside(outcome, trial.params)
        verdict = judge(
            trial, outcome, spec.goals, max_retries=spec.max_retries, ending=self._ending
        )
        after = journal.apply(
            Ended(outcome, verdict.state, verdict.failure, verdict.message, journal.now)
        )
        journal.accounts.end(after or trial, outcome.seconds)
        if spec.workload is not None and after is not None:
            journal.then(lambda: self._tidy(after))

    def _tidy(self, trial: Trial) -> None:
        """What has lost its checkpoint cannot go on."""
        journal = self._journal
        for number in self._checkpoints.tidy(trial, journal.trials):
            journal.apply(
                Moved(number, TrialState.STOPPED, "no room for its checkpoint", journal.now)
            )

    def _on_report(self, trial: Trial) -> None:
        self._journal.accounts.look(trial)
        if trial.number == 0 or trial.number in self._asked:
            return
        self._tell_budget()
        if reason := self._probes.stop_reason(trial, self._journal.trials):
            decision = Decision("stop", reason)
        else:
            decision = self._thinking(lambda: self._stopper.decide(trial, self._journal.trials))
        if decision.action != "continue":
            self._journal.note(decision.action, decision.reason, trial.number)
            self._ask(
                trial, Halt.STOP if decision.action == "stop" else Halt.PAUSE, decision.reason
            )

    # ------------------------------------------------------------------ the end

    def _check(self, dispatcher: Dispatcher) -> None:
        """See whether something asks the sweep to end."""
        journal, signals = self._journal, self._attention.count
        if signals and self._ending is not Halt.INTERRUPT:
            self._end(Halt.INTERRUPT, "interrupted")
        reason = (
            "it was asked to stop" if journal.stop_requested else journal.accounts.over(journal.now)
        )
        if reason and self._ending is None:
            self._end(Halt.STOP, reason)
        if signals > 1 or time.monotonic() > self._deadline:
            for trial in journal.history.running:
                dispatcher.kill(
                    trial.number,
                    trial.attempts,
                    "preempted",
                    "ended by force, together with the sweep",
                )

    def _end(self, how: Halt, reason: str) -> None:
        self._ending = how
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._journal.note("end", reason)
        for trial in self._journal.history.running:
            self._ask(trial, how, reason)

    def _ask(self, trial: Trial, how: Halt, reason: str) -> None:
        dispatcher = self._journal.dispatcher
        if dispatcher is not None:
            self._asked[trial.number] = reason
            self._journal.then(lambda: dispatcher.halt(trial.number, trial.attempts, how))

    def _close(self) -> None:
        """Leave nothing behind that waits, unless the sweep is to be resumed."""
        journal = self._journal
        if self._error is not None:
            raise self._error
        if self._ending is not Halt.INTERRUPT:
            for trial in journal.trials:
                if not trial.state.finished:
                    journal.apply(
                        Moved(trial.number, TrialState.STOPPED, "the sweep has ended", journal.now)
                    )
        journal.close("interrupted" if self._ending is Halt.INTERRUPT else "finished")

    def _abandon(self, state: str) -> None:
        """Say in the ledger that this controller went away, as far as it can still be written to."""
        try:
            for trial in self._journal.history.running:
                self._interrupt(trial, "its controller failed")
            self._journal.close(state)
        except AutomlError:
            return
