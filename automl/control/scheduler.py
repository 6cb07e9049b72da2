"""What runs next: trial 0, then resumed, retried and enqueued trials, then new ones."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from automl.core import SweepSpec, Trial, TrialState
from automl.core.ranking import MAX_SHARE
from automl.core.spec import ranks_of
from automl.core.state import ENQUEUE
from automl.core.trial import without_held
from automl.dispatch.base import Dispatcher, GangShape
from automl.errors import AutomlError, UsageError
from automl.stopping.base import Stopper
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.queue import SuggestionQueue
from workers.artifacts import SweepArtifacts
from workers.files import Folder
from workers.protocol import Assignment, Limits

from .journal import Journal
from .machine import MemoryGuard
from .outcomes import USED_UP, reason_for_none, reason_of_time
from .shutdown import Shutdown

TIMEOUT_SECONDS: Final = 900.0  # of a workload, if the spec sets no time-out


@dataclass(frozen=True)
class Assigner:
    """Makes assignments for the trials of a sweep.

    Args:
        spec: of the sweep.
        files: its folder.
        artifacts: of the sweep; None if its trials keep their files in its folder.
    """

    spec: SweepSpec
    files: Folder
    artifacts: SweepArtifacts | None = None

    def slots(self, params: Mapping[str, Any]) -> int:
        """How many slots a configuration takes: one per rank."""
        return self.shape(params).ranks

    def shape(self, params: Mapping[str, Any]) -> GangShape:
        """The slots of a configuration, and how many of them must be on one node."""
        if self.spec.workload is None:
            return GangShape(ranks_of(self.spec.ranks, params))
        from workers.parallel import num_ranks, ranks_together

        ranks = num_ranks(params, self.spec.fixed)
        try:
            return GangShape(ranks, ranks_together(params, self.spec.fixed))
        except UsageError:
            return GangShape(ranks)  # the trial fails, and says why

    def assignment(self, trial: Trial, asked: Mapping[str, Any] | None = None) -> Assignment:
        """The assignment of the trial's current attempt; its worker checks the folder.

        Args:
            asked: the ranges that trials have asked for; None if the space was declared.
        """
        spec = self.spec
        within = [goal.within for goal in spec.goals if goal.within is not None]
        resume = trial.attempts > 1
        folder = self.files / "trials" / str(trial.number)
        shape, timeout = self.shape(trial.params), spec.timeout
        if timeout is None and spec.workload is not None:  # a user's objective need not report
            timeout = TIMEOUT_SECONDS
        return Assignment(
            sweep=spec.name,
            trial=trial.number,
            attempt=trial.attempts,
            params=self.spec.completed(trial.params),
            workload=spec.workload,
            folder=str(folder.path),
            store=str(self.files.root),
            data=spec.data,
            fixed=spec.fixed,
            seed=seed_of(spec, trial.number),
            num_ranks=shape.ranks,
            ranks_together=shape.together,
            torchrun=spec.ranks != 1,
            threads=max(1, spec.resources.cpus),
            gpus=spec.resources.gpus,
            resume=resume,
            previous_seconds=trained_before(spec, trial) if resume else 0.0,
            goals=tuple(goal.metric for goal in spec.goals),
            constrained=tuple(constraint.metric for constraint in spec.constraints),
            artifacts=self.artifacts.trial(trial.number) if self.artifacts else "",
            asked=asked,
            limits=Limits(min(within, default=None), timeout, spec.resources.memory),
        )


def trained_before(spec: SweepSpec, trial: Trial) -> float:
    """Training seconds of earlier attempts, if the newest one goes on from a checkpoint."""
    if spec.workload is None and not spec.resumable:
        return 0.0
    earlier = (p.seconds for p in reversed(trial.reports) if p.attempt < trial.attempts)
    return next(earlier, 0.0)


def seed_of(spec: SweepSpec, number: int) -> int:
    """The seed of a trial: the same for each attempt, independent of other sweeps.

    It is independent of other trials too, except of its pair's if the spec is `paired`.
    """
    draw = number // 2 if spec.paired else number
    return int(np.random.SeedSequence([spec.seed % 2**64, draw]).generate_state(1)[0])


LOOK_SECONDS: Final = 0.25  # between two looks into the store, if nothing is committed


class Scheduler:
    """Fills free slots with trials. Used from the controller's thread.

    Args:
        journal: of the sweep.
        suggestions: propose new trials.
        stopper: resumes paused trials, and may propose new ones itself.
        assigner: makes assignments.
        guard: estimates memory; refuses a trial that needs far too much.
        shutdown: ends the sweep if suggesting fails. While the sweep ends, nothing begins.
        make_suggester: makes the suggester of a specification.
        starts_fast: whether the dispatcher has started trial 0 before a suggester is imported.
    """

    def __init__(
        self,
        journal: Journal,
        suggestions: SuggestionQueue,
        stopper: Stopper,
        assigner: Assigner,
        guard: MemoryGuard,
        shutdown: Shutdown,
        *,
        make_suggester: Callable[[SweepSpec, str, Domain], Suggester],
        starts_fast: bool = False,
    ) -> None:
        self._make_suggester = make_suggester
        self._starts_fast = starts_fast
        self._journal = journal
        self._suggestions = suggestions
        self._stopper = stopper
        self._assigner = assigner
        self._guard = guard
        self._shutdown = shutdown
        self._domain = Domain.of(journal.spec)
        self._limits: dict[str, object] = {}  # that were obeyed or refused last
        self._looked = time.monotonic()
        self._end_noted = False

    def prepare(self) -> None:
        """Take up the trials of earlier runs and propose trial 0, before there is a dispatcher."""
        journal = self._journal
        for trial in list(journal.trials):
            self._stopper.observe(without_held(trial))
            if trial.state is TrialState.RUNNING and trial.lease is None:
                # It may have killed its controller: it is tried again at most `max_retries` times.
                seconds = journal.seconds_running(trial)
                message = "its controller was lost"
                journal.fail(trial, "crashed", message, seconds=seconds, worker_lost=True)
            elif trial.state is TrialState.INTERRUPTED:
                journal.move(trial, TrialState.WAITING, "resumed")
        default = journal.spec.space.default()
        if not journal.trials and default is not None and self._new_trials_left():
            journal.propose(default, "default")
        self.obey()
        self._estimate_next()
        journal.flush()
        soon = not self._starts_fast or journal.state.index.next_waiting is None
        if soon and self._new_trials_left():
            self._suggestions.prepare(journal.state.index)

    def fill(self) -> None:
        """Obey new commands and begin trials on the free slots.

        A trial that needs more slots than are free waits for them, and the others wait behind it.
        """
        self.obey()
        if self._shutdown.request is not None:
            self._dispatcher.demand((), 0)
            return
        free, begun = self._dispatcher.free_slots, 0
        while free > 0 and not self._first_begins and (first := self.next_trial(free)) is not None:
            slots = self._slots(first)
            if not self._fits(first, free, begun):
                break
            if slots and not self._guard.ready(first.params, slots):
                break
            self._begin(first)
            begun += 1
            free = 0 if self._dispatcher.serial else free - slots
        if not self._first_begins and self._new_trials_left():
            self._prepare_next()
        self._estimate_next()
        if self._dispatcher.elastic:
            self._demand()

    @property
    def _dispatcher(self) -> Dispatcher:
        return self._journal.dispatcher

    @property
    def _first_begins(self) -> bool:
        """Whether trial 0 is on its way to its worker: the import of a suggester would delay it."""
        trials = self._journal.trials
        if not self._starts_fast or len(trials) != 1:
            return False
        return trials[0].state is TrialState.RUNNING and not trials[0].worker

    @property
    def is_done(self) -> bool:
        """Whether no trial can begin any more."""
        return self._next_waiting() is None and self._new_trials_left() == 0

    def wants_proposals(self) -> bool:
        """Whether a free slot waits for a proposal that is being made."""
        free = self._dispatcher.free_slots > 0 and self._shutdown.request is None
        return free and self._dispatcher.suggests_ahead and self._new_trials_left() > 0

    def update_stopper(self) -> None:
        """Tell the stopper how much of the budget is spent."""
        journal = self._journal
        self._stopper.update_budget(
            journal.state.use.spent(journal.now, len(journal.trials)),
            journal.state.use.seconds_left(journal.now),
        )

    def obey(self, *, refresh: bool = False) -> None:
        """Take in limits and configurations that people have sent.

        Args:
            refresh: look into the store at once, not only now and then.
        """
        journal = self._journal
        if refresh or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            journal.look()
        if journal.state.limits != self._limits:
            self._limits = dict(journal.state.limits)
            self._restrict()
        for number, command in list(journal.state.requests.items()):
            if command.kind != ENQUEUE:
                continue
            try:
                params = journal.spec.space.accept(command.content)
            except AutomlError as error:
                journal.answer(number, {"error": str(error), "usage": True})
            else:
                journal.propose(params, "enqueued", number, command.trial)

    def respecify(self, spec: SweepSpec) -> None:
        """Propose for another specification, such as one with more parameters; the limits stay."""
        self._suggestions.restrict(make=partial(self._make_suggester, spec))
        self._domain = Domain.of(spec)
        self._restrict()

    def _restrict(self) -> None:
        try:
            domain = self._domain.within(updated_limits([self._limits]))
        except AutomlError as error:
            self._journal.note("limits", f"not obeyed: {error}")
            return
        self._domain = domain
        self._suggestions.restrict(domain)
        self._stopper.restrict(domain)

    # ------------------------------------------------------------------ the next trial

    def next_trial(self, free: int = 1) -> Trial | None:
        """The next waiting trial: one that was tried before, else a paused one, else a new one."""
        journal = self._journal
        waiting = self._next_waiting()
        if waiting is not None:
            return waiting
        left = self._new_trials_left()
        self.update_stopper()
        trials = journal.state.visible_trials()
        resumed = self._dispatcher.charged(lambda: self._stopper.resume(trials, last=left == 0))
        if resumed is not None:
            number, reason = resumed
            if journal.trials[number].state is not TrialState.PAUSED:
                raise AutomlError(f"the stopper resumes trial {number}, which is not paused")
            return journal.move(journal.trials[number], TrialState.WAITING, reason)
        if left > 0:
            # A later proposal knows more, so only as many are made as begin now.
            one = journal.spec.workload is not None or self._stopper.proposes
            one |= self._dispatcher.serial
            self._propose(min(left, 1 if one else free))
        return self._next_waiting()

    def _next_waiting(self) -> Trial | None:
        """The trial at the head of the queue; of those tried before if no other may begin.

        As numbers are given in turn, those below the budget's number of trials may begin.
        """
        index, limit = self._journal.state.index, self._journal.spec.budget.trials
        first = index.next_waiting
        if first is None or first.attempts > 0:
            return first
        late = reason_of_time(self._journal.state, self._assigner.slots, self._journal.now)
        self._note_end(late)
        most = 0 if late else math.inf if limit is None else limit
        if first.number < most:
            return first
        return next((trial for trial in index.waiting if trial.attempts > 0), None)

    def _fits(self, trial: Trial, free: int, begun: int) -> bool:
        """Whether a trial can begin on the free slots.

        Args:
            begun: trials that take slots as soon as they are committed. A gang with ranks that must
                be together waits for that, since nobody knows yet which slots it will be.
        """
        shape = self._assigner.shape(trial.params)
        if shape.ranks > self._dispatcher.most_slots:
            return True  # it fails at once
        if shape.ranks > free or shape.together == 1:
            return shape.ranks <= free
        return not begun and self._dispatcher.fits(shape)

    def _demand(self) -> None:
        """Tell the dispatcher which trials wait for slots, and how many may follow."""
        most = self._dispatcher.most_slots
        waiting = [
            self._assigner.shape(one.params) for one in self._journal.state.index.waiting[:most]
        ]
        # A trial that was begun in this round gets its slots with the next commit.
        self._dispatcher.demand(waiting, min(self._new_trials_left(), most))

    def _slots(self, trial: Trial) -> int:
        """Slots of a trial; 0 if it needs more than there are, because it fails at once."""
        slots = self._assigner.slots(trial.params)
        return slots if slots <= self._dispatcher.most_slots else 0

    def _propose(self, count: int) -> None:
        journal = self._journal
        charged = self._dispatcher.charged
        self.obey(refresh=True)
        if self._stopper.guided:
            params = charged(lambda: self._stopper.propose(journal.state.visible_trials()))
            if params is not None and (not self._domain.narrow or self._domain.legal(params)):
                journal.propose(params, self._stopper.name)
                return
        try:
            take = partial(self._suggestions.take, last_part=self._is_last_part)
            proposals = charged(lambda: take(journal.state.index, count))
        except AutomlError as error:
            self._shutdown.fail(error)
            return
        for proposal in proposals:
            journal.propose(proposal.params, proposal.source, replicate_of=proposal.replicate_of)

    def _prepare_next(self) -> None:
        """While all of several slots are busy, one proposal may be made for the next free one."""
        journal, dispatcher = self._journal, self._dispatcher
        busy = dispatcher.num_slots > 1 and dispatcher.free_slots <= 0
        seconds = journal.state.use.trial_seconds if busy else 0.0
        ahead = seconds if math.isfinite(seconds) else 0.0  # nobody knows before a trial has ended
        self._suggestions.prepare(journal.state.index, ahead, last_part=self._is_last_part)

    @property
    def _is_last_part(self) -> bool:
        """Whether only so much of the budget is left that configurations may run again."""
        journal = self._journal
        spent = journal.state.use.spent(journal.now, len(journal.trials))
        return spent >= 1 - MAX_SHARE

    def _begin(self, trial: Trial) -> None:
        journal = self._journal
        slots = self._assigner.slots(trial.params)
        failure, message = "", ""
        if slots > self._dispatcher.most_slots:
            failure = "crashed"
            most = self._dispatcher.most_slots
            message = f"the configuration takes {slots} slots, there are {most}"
        elif trial.attempts == 0 and (message := self._guard.refusal(trial.params, slots)):
            failure = "out_of_memory"
        begun = journal.begin(trial, 0 if failure else slots)
        if failure:
            journal.fail(begun, failure, message, **self._guard.facts(trial.params))
            return
        assignment = self._assigner.assignment(begun, journal.spec.asked_ranges)
        journal.then(lambda: self._dispatcher.submit(assignment))

    def _estimate_next(self) -> None:
        """Request the memory estimate of the next trial while workers train or start."""
        first = self._journal.state.index.next_waiting or next(iter(self._suggestions.ready), None)
        if first is not None:
            self._guard.ready(first.params, self._assigner.slots(first.params))

    # ------------------------------------------------------------------ the budget of trials

    @property
    def reason_for_none(self) -> str:
        """Why no new trial begins; "" if one may."""
        journal = self._journal
        return reason_for_none(journal.state, self._suggestions, self._assigner.slots, journal.now)

    def _new_trials_left(self) -> int:
        """How many more trials may be proposed; notes why there are none, unless that is usual."""
        reason = self.reason_for_none
        self._note_end("" if reason == USED_UP else reason)
        return 0 if reason else self._journal.state.trials_left

    def _note_end(self, reason: str) -> None:
        if reason and not self._end_noted:
            self._end_noted = True
            self._journal.note("end", reason)
