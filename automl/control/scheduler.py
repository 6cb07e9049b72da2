"""What runs next: trial 0, then resumed, retried and enqueued trials, then new ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import (
    ENQUEUE,
    SweepSpec,
    SweepState,
    Trial,
    TrialState,
    ranks_of,
    without_held,
)
from automl.core.ranking import MAX_SHARE
from automl.dispatch.base import Dispatcher, GangShape
from automl.errors import AutomlError, UsageError
from automl.stopping.base import Stopper
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.queue import SuggestionQueue
from workers.artifacts import location_of
from workers.files import Folder
from workers.protocol import Assignment, Limits

from .machine import MemoryGuard
from .outcomes import Journal, fail

if TYPE_CHECKING:
    from .steering import Shutdown

USED_UP: Final = "its budget is used up"
TIMEOUT_SECONDS: Final = 900.0  # of a workload, if the spec sets no time-out


@dataclass(frozen=True)
class Assigner:
    """Makes assignments for the trials of a sweep.

    Args:
        spec: of the sweep.
        files: its folder.
        artifacts: location of the sweep's; "" if its trials keep their files in its folder.
    """

    spec: SweepSpec
    files: Folder
    artifacts: str = ""

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
        shape, timeout = self.shape(trial.params), spec.timeout
        if timeout is None and spec.workload is not None:  # a user's objective need not report
            timeout = TIMEOUT_SECONDS
        return Assignment(
            sweep=spec.name,
            trial=trial.number,
            attempt=trial.attempts,
            params=self.spec.completed(trial.params),
            workload=spec.workload,
            folder=str((self.files / "trials" / str(trial.number)).path),
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
            artifacts=location_of(self.artifacts, trial.number) if self.artifacts else "",
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
        assigner: makes assignments; an attribute too.
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
        self.assigner = assigner
        self._journal, self._shutdown = journal, shutdown
        self._suggestions, self._make_suggester = suggestions, make_suggester
        self._stopper, self._guard = stopper, guard
        self._starts_fast = starts_fast
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
                facts = {"seconds": journal.seconds_running(trial), "worker_lost": True}
                fail(journal, trial, "crashed", "its controller was lost", **facts)
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
            shape = self.assigner.shape(first.params)
            slots = shape.ranks if shape.ranks <= self._dispatcher.most_slots else 0  # it fails
            fits = slots == 0 or self._fits(shape, free, begun)
            if not fits or (slots and not self._guard.ready(first.params, slots)):
                break
            self._begin(first, shape.ranks)
            begun += 1
            free = 0 if self._dispatcher.serial else free - slots
        if not self._first_begins and self._new_trials_left():
            self._prepare_next()
        self._estimate_next()
        if self._dispatcher.elastic:  # a trial that has begun gets its slots with the next commit
            most = self._dispatcher.most_slots
            waiting = self._journal.state.index.waiting[:most]
            shapes = [self.assigner.shape(trial.params) for trial in waiting]
            self._dispatcher.demand(shapes, min(self._new_trials_left(), most))

    @property
    def _dispatcher(self) -> Dispatcher:
        return self._journal.dispatcher

    @property
    def _first_begins(self) -> bool:
        """Whether trial 0 is on its way to its worker: the import of a suggester would delay it."""
        running = self._journal.state.index.running if len(self._journal.trials) == 1 else []
        return self._starts_fast and any(not trial.worker for trial in running)

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
            journal.state.spent(journal.now, len(journal.trials)),
            journal.state.seconds_left(journal.now),
        )

    def obey(self, *, refresh: bool = False) -> None:
        """Take in limits and configurations that people have sent.

        Args:
            refresh: look into the store at once, not only now and then.
        """
        journal = self._journal
        if refresh or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            journal.hold.look()
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
            return journal.move(journal.trials[number], TrialState.WAITING, reason)
        if left > 0:
            # A later proposal knows more, so only as many are made as begin now.
            ahead = not (self._stopper.proposes or self._dispatcher.serial)
            self._propose(min(left, free) if ahead and journal.spec.workload is None else 1)
        return self._next_waiting()

    def _next_waiting(self) -> Trial | None:
        """The trial at the head of the queue; of those tried before if no other may begin.

        As numbers are given in turn, those below the budget's number of trials may begin.
        """
        index, limit = self._journal.state.index, self._journal.spec.budget.trials
        first = index.next_waiting
        if first is None or first.attempts > 0:
            return first
        late = reason_of_time(self._journal.state, self.assigner.slots, self._journal.now)
        self._note_end(late)
        most = 0 if late else math.inf if limit is None else limit
        if first.number < most:
            return first
        return next((trial for trial in index.waiting if trial.attempts > 0), None)

    def _fits(self, shape: GangShape, free: int, begun: int) -> bool:
        """Whether a trial can begin on the free slots.

        Args:
            begun: trials that take slots as soon as they are committed. A gang with ranks that must
                be together waits for that, since nobody knows yet which slots it will be.
        """
        if shape.ranks > free or shape.together == 1:
            return shape.ranks <= free
        return not begun and self._dispatcher.fits(shape)

    def _propose(self, count: int) -> None:
        journal = self._journal
        charged = self._dispatcher.charged
        self.obey(refresh=True)
        if self._stopper.guided:
            params = charged(lambda: self._stopper.propose(journal.state.visible_trials()))
            if params is not None and (not self._domain.narrow or self._domain.legal(params)):
                journal.propose(params, self._stopper.name)
                return
        take = partial(self._suggestions.take, last_part=self._is_last_part)
        try:
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
        ahead = journal.state.trial_seconds if busy else 0.0
        self._suggestions.prepare(journal.state.index, ahead, last_part=self._is_last_part)

    @property
    def _is_last_part(self) -> bool:
        """Whether only so much of the budget is left that configurations may run again."""
        journal = self._journal
        return journal.state.spent(journal.now, len(journal.trials)) >= 1 - MAX_SHARE

    def _begin(self, trial: Trial, slots: int) -> None:
        journal, most = self._journal, self._dispatcher.most_slots
        failure, message = "out_of_memory", ""
        if slots > most:
            failure, message = "crashed", f"the configuration takes {slots} slots, there are {most}"
        elif trial.attempts == 0:
            message = self._guard.refusal(trial.params, slots)
        begun = journal.begin(trial, 0 if message else slots)
        if message:
            fail(journal, begun, failure, message, **self._guard.facts(trial.params))
            return
        assignment = self.assigner.assignment(begun, journal.spec.asked_ranges)
        journal.then(lambda: self._dispatcher.submit(assignment))

    def _estimate_next(self) -> None:
        """Request the memory estimate of the next trial while workers train or start."""
        first = self._journal.state.index.next_waiting or next(iter(self._suggestions.ready), None)
        if first is not None:
            self._guard.ready(first.params, self.assigner.slots(first.params))

    # ------------------------------------------------------------------ the budget of trials

    @property
    def reason_for_none(self) -> str:
        """Why no new trial begins; "" if one may."""
        journal = self._journal
        return reason_for_none(journal.state, self._suggestions, self.assigner.slots, journal.now)

    def _new_trials_left(self) -> int:
        """How many more trials may be proposed; notes why there are none, unless that is usual."""
        reason = self.reason_for_none
        self._note_end(reason)
        return 0 if reason else self._journal.state.trials_left

    def _note_end(self, reason: str) -> None:
        if reason not in ("", USED_UP) and not self._end_noted:
            self._end_noted = True
            self._journal.note("end", reason)


def reason_for_none(
    state: SweepState,
    suggestions: SuggestionQueue,
    slots: Callable[[Mapping[str, Any]], int],
    now: float,
) -> str:
    """Why no new trial begins; "" if one may.

    Args:
        suggestions: know what another trial may gain, and whether the space is exhausted.
        slots: returns how many slots a configuration takes.
    """
    budget = state.spec.budget
    if state.trials_left == 0:
        return USED_UP
    if suggestions.exhausted:
        if not state.spec.space.parameters:
            return (
                "no space was given, and its objective asks for no parameter (trial.suggest_float)"
            )
        if limits := ", ".join(state.limits):
            return f"every configuration within its limits was tried; the limits are on {limits}"
        return "every configuration of its space was tried"
    if budget.until == "settled" and (at := suggestions.settled()):
        return (
            "the recommendation is settled: going on is expected to improve it by at most "
            f"{at.gain:.2g}, and its standard error is {at.error:.2g}"
        )
    return reason_of_time(state, slots, now)


def reason_of_time(state: SweepState, slots: Callable[[Mapping[str, Any]], int], now: float) -> str:
    """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
    waiting = state.index.next_waiting
    reason = state.reason_to_begin_none(now, slots(waiting.params) if waiting else 1)
    return f"no further trial begins: {reason}" if reason else ""
