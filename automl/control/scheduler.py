"""What runs next: trial 0, then resumed, retried and enqueued trials, then new ones."""

import math
from collections import Counter
from typing import Final

from automl.core import Begun, Ended, Moved, Proposed, Trial, TrialState
from automl.core.trial import without_held
from automl.dispatch.base import Dispatcher, GangShape
from automl.dispatch.leases import MachineLeases
from automl.errors import AutomlError
from automl.stopping.base import Stopper
from automl.suggesters.queue import SuggestionQueue

from .assignments import Assigner
from .commands import SweepCommands
from .journal import Journal
from .memory_guard import MemoryGuard
from .shutdown import Shutdown

MAX_WAIT_SHARE: Final = 0.1  # of an attempt's seconds: how long a worker waits for the suggester
MAX_WAITING: Final = 2  # trials that are proposed behind one that waits for more slots
_UNLIMITED: Final = 2**31


class Scheduler:
    """Fills free slots with trials. Used from the controller's thread.

    Args:
        journal: of the sweep.
        suggestions: propose new trials.
        stopper: resumes paused trials, and may propose new ones itself.
        assigner: makes assignments.
        guard: estimates memory; refuses a trial that needs far too much.
        commands: of people to the sweep.
        shutdown: ends the sweep if suggesting fails. While the sweep ends, nothing begins.
        leases: of this machine's cores.
    """

    def __init__(
        self,
        journal: Journal,
        suggestions: SuggestionQueue,
        stopper: Stopper,
        assigner: Assigner,
        guard: MemoryGuard,
        commands: SweepCommands,
        shutdown: Shutdown,
        leases: MachineLeases,
    ) -> None:
        self._leases = leases
        self._journal = journal
        self._suggestions = suggestions
        self._stopper = stopper
        self._assigner = assigner
        self._guard = guard
        self._commands = commands
        self._shutdown = shutdown
        self._overtaken: Counter[int] = Counter()  # how many trials began before a waiting one
        self._end_reason = ""
        self._trouble_noted = False
        self._dispatcher_trouble = ""  # that was noted last
        self._blocked = False  # every core is leased

    def prepare(self) -> None:
        """Take up the trials of earlier runs and propose trial 0, before there is a dispatcher."""
        journal = self._journal
        for trial in list(journal.trials):
            journal.budget.add_earlier(trial, trial.seconds, self._assigner.slots(trial.params))
            self._stopper.observe(without_held(trial))
            self._guard.observe(trial)
            if trial.lease is not None:
                journal.budget.begin(trial.number, journal.begun(trial), 1)
            elif trial.state is TrialState.RUNNING:
                self._shutdown.take_over(trial)
            if journal.trials[trial.number].state is TrialState.INTERRUPTED:
                journal.apply(Moved(trial.number, TrialState.WAITING, "resumed", journal.now))
        default = journal.spec.space.default()
        if not journal.trials and default is not None and self._trials_left():
            journal.apply(Proposed(0, default, "default", journal.now))
        self._commands.execute()
        self._estimate_next()
        journal.flush()
        self._suggestions.prepare(journal.index, self._trials_left(), math.inf)

    def fill(self, dispatcher: Dispatcher) -> None:
        """Obey new commands and begin trials on the free slots."""
        self._commands.execute()
        if self._shutdown.request is not None:
            dispatcher.demand((), 0)
            return
        free, begun = self._room(dispatcher.free_slots, dispatcher), 0
        while free > 0 and (first := self._next_trial(free, dispatcher)) is not None:
            trial: Trial | None = first
            if not self._fits(first, free, dispatcher, begun):
                trial = self._backfill(first, free, dispatcher, begun)
            if trial is None:
                break
            slots = self._slots(trial, dispatcher)
            if slots and not self._guard.ready(trial.params, slots):
                break
            if slots and not self._leases.take(trial.number, slots):
                break
            if trial is not first:
                self._overtaken[first.number] += 1
            self._begin(trial, dispatcher)
            begun += 1
            free = 0 if dispatcher.serial else self._room(free - slots, dispatcher)
        seconds = self._journal.budget.trial_seconds
        self._suggestions.prepare(
            self._journal.index,
            self._trials_left(),
            seconds / max(dispatcher.num_slots, 1),
            MAX_WAIT_SHARE * seconds,
        )
        self._estimate_next()
        if dispatcher.elastic:
            self._demand(dispatcher)

    @property
    def is_done(self) -> bool:
        """Whether no trial can begin any more."""
        return self._next_waiting() is None and self._new_trials_left() == 0

    def wants_proposals(self, dispatcher: Dispatcher) -> bool:
        """Whether a free slot waits for a proposal that is being made."""
        free = dispatcher.free_slots > 0 and self._shutdown.request is None and not self._blocked
        return free and dispatcher.suggests_ahead and self._new_trials_left() > 0

    def update_stopper(self) -> None:
        """Tell the stopper how much of the budget is spent."""
        journal = self._journal
        self._stopper.update_budget(
            journal.budget.spent(journal.now, len(journal.trials)),
            journal.budget.seconds_left(journal.now),
        )

    def ended(self, number: int) -> None:
        """An attempt at a trial has ended: its cores are free."""
        self._leases.give_back(number)

    def next_for_agent(self, dispatcher: Dispatcher) -> Trial | None:
        """The trial that an agent gets; None if there is none, or none is proposed yet."""
        return self._next_trial(1, dispatcher)

    @property
    def reason_for_none(self) -> str:
        """Why no trial can begin any more, once `is_done`."""
        if self._suggestions.exhausted:
            return "every configuration of its space was tried"
        return self._end_reason or "its budget is used up"

    # ------------------------------------------------------------------ the next trial

    def _room(self, free: int, dispatcher: Dispatcher) -> int:
        """How many of the free slots may begin a trial, since other sweeps use this machine too."""
        room = self._leases.room(free, claim=not self.is_done) if free > 0 else 0
        self._journal.waits_for = (
            self._leases.waits_for or dispatcher.waits_for or dispatcher.trouble
        )
        if dispatcher.trouble != self._dispatcher_trouble:
            self._dispatcher_trouble = dispatcher.trouble
            self._journal.note("gpus", dispatcher.trouble)
        if self._leases.trouble and not self._trouble_noted:
            self._trouble_noted = True
            message = f"the machine is not shared with other sweeps: {self._leases.trouble}"
            self._journal.note("leases", message)
        self._blocked = free > 0 and room == 0
        return room

    def _next_trial(self, free: int, dispatcher: Dispatcher) -> Trial | None:
        """The next waiting trial: one that was tried before, else a paused one, else a new one."""
        journal = self._journal
        waiting = self._next_waiting()
        if waiting is not None:
            return waiting
        left = self._new_trials_left()
        self.update_stopper()
        trials = journal.visible_trials()
        resumed = dispatcher.charged(lambda: self._stopper.resume(trials, last=left == 0))
        if resumed is not None:
            number, reason = resumed
            if journal.trials[number].state is not TrialState.PAUSED:
                raise AutomlError(f"the stopper resumes trial {number}, which is not paused")
            return journal.apply(Moved(number, TrialState.WAITING, reason, journal.now))
        if left > 0:
            # A later proposal knows more, so only as many are made as begin now.
            one = journal.spec.workload is not None or self._stopper.one_by_one
            one |= dispatcher.serial or self._leases.crowded
            self._propose(min(left, 1 if one else free), dispatcher)
        return self._next_waiting()

    def _next_waiting(self) -> Trial | None:
        """The trial at the head of the queue; of those tried before if it is late for a new one."""
        waiting = self._journal.index.next_waiting
        if waiting is None or waiting.attempts > 0 or not self._is_late():
            return waiting
        return next((trial for trial in self._journal.index.waiting if trial.attempts > 0), None)

    def _fits(self, trial: Trial, free: int, dispatcher: Dispatcher, begun: int) -> bool:
        """Whether a trial can begin on the free slots.

        Args:
            begun: trials that take slots as soon as they are committed. A gang with ranks that must
                be together waits for that, since nobody knows yet which slots it will be.
        """
        slots = self._slots(trial, dispatcher)
        if slots == 0:
            return True
        shape = self._assigner.shape(trial.params) if slots > 1 else GangShape(1)
        if slots > free or shape.together == 1:
            return slots <= free
        return not begun and dispatcher.fits(shape)

    def _demand(self, dispatcher: Dispatcher) -> None:
        """Tell the dispatcher which trials wait for slots, and how many may follow."""
        most = dispatcher.most_slots
        waiting = [self._assigner.shape(one.params) for one in self._journal.index.waiting[:most]]
        # A trial that was begun in this round gets its slots with the next commit.
        dispatcher.demand(waiting, min(self._new_trials_left(), most))

    def _backfill(
        self, large: Trial, free: int, dispatcher: Dispatcher, begun: int
    ) -> Trial | None:
        """A trial that fits the free slots, while `large` waits for more slots.

        At most `num_slots` trials may overtake the waiting one. Of new trials that have to wait as
        well, only a few are proposed.
        """
        if self._overtaken[large.number] >= dispatcher.num_slots:
            return None
        others = self._others(large)
        if len(others) < MAX_WAITING and self._new_trials_left():
            self._propose(1, dispatcher)
            others = self._others(large)
        return next((trial for trial in others if self._fits(trial, free, dispatcher, begun)), None)

    def _others(self, large: Trial) -> list[Trial]:
        return [trial for trial in self._journal.index.waiting if trial.number != large.number]

    def _slots(self, trial: Trial, dispatcher: Dispatcher) -> int:
        """Slots of a trial; 0 if it needs more than there are, because it fails at once."""
        slots = self._assigner.slots(trial.params)
        return slots if slots <= dispatcher.most_slots else 0

    def _propose(self, count: int, dispatcher: Dispatcher) -> None:
        journal = self._journal
        self._commands.execute(refresh=True)
        if self._stopper.guided:
            params = dispatcher.charged(lambda: self._stopper.propose(journal.visible_trials()))
            if params is not None and self._commands.allows(params):
                journal.apply(
                    Proposed(len(journal.trials), params, self._stopper.name, journal.now)
                )
                return
        try:
            proposals = dispatcher.charged(lambda: self._suggestions.take(journal.index, count))
        except AutomlError as error:
            self._shutdown.fail(error, dispatcher)
            return
        for proposal in proposals:
            journal.apply(
                Proposed(len(journal.trials), proposal.params, proposal.source, journal.now)
            )

    def _begin(self, trial: Trial, dispatcher: Dispatcher) -> None:
        journal = self._journal
        slots = self._assigner.slots(trial.params)
        begun = journal.apply(Begun(trial.number, trial.attempts + 1, journal.now))
        if begun is None:
            raise AutomlError(f"trial {trial.number} was begun twice")
        if slots > dispatcher.most_slots:
            message = f"the configuration takes {slots} slots, there are {dispatcher.most_slots}"
            journal.apply(Ended.failed(begun, "crashed", message, journal.now))
            return
        if trial.attempts == 0 and (message := self._guard.refusal(trial.params, slots)):
            details = self._guard.details(trial.params)
            journal.apply(Ended.failed(begun, "out_of_memory", message, journal.now, details))
            self.ended(trial.number)
            return
        journal.budget.begin(trial.number, journal.now, slots)
        assignment = self._assigner.assignment(begun)
        journal.then(lambda: dispatcher.submit(assignment))

    def _estimate_next(self) -> None:
        """Request the memory estimate of the next trial while workers train or start."""
        first = self._journal.index.next_waiting or next(iter(self._suggestions.ready), None)
        if first is not None:
            self._guard.ready(first.params, self._assigner.slots(first.params))

    # ------------------------------------------------------------------ the budget of trials

    def _new_trials_left(self) -> int:
        return 0 if self._suggestions.exhausted else self._trials_left()

    def _trials_left(self) -> int:
        """How many more trials the budget allows."""
        journal = self._journal
        gain = journal.spec.budget.gain
        if not self._suggestions.worth(gain):
            self._note_end(f"another trial is expected to gain less than {gain or 0.0:g}")
            return 0
        if self._is_late():
            return 0
        left = journal.budget.trials_left(len(journal.trials))
        return _UNLIMITED if left is None else left

    def _is_late(self) -> bool:
        """Whether the next trial, a waiting or a new one, could not end within the time left."""
        waiting = self._journal.index.next_waiting
        slots = self._assigner.slots(waiting.params) if waiting else 1
        reason = self._journal.budget.reason_to_begin_none(self._journal.now, slots)
        if reason is not None:
            self._note_end(f"no further trial begins: {reason}")
        return reason is not None

    def _note_end(self, reason: str) -> None:
        if not self._end_reason:
            self._journal.note("end", reason)
        self._end_reason = reason
