"""Proposals for the controller: one is made if a slot is free, at once or in a thread."""

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from automl.core import TrialIndex

from .base import Prospect
from .domain import Domain
from .proposer import MakeSuggester, Proposal, ProposalBatch, Proposer

SWITCH_SECONDS: Final = 0.0005  # Python's 5 ms would delay the controller beside the thread
THREAD: Final = "automl-suggester"
NUM_PROSPECTS: Final = 3  # a sweep ends after so many in a row that promise too little
NUM_TIMED: Final = 20  # suggestions whose mean duration counts
FREE_SLOTS: Final = 8  # of so many free slots one gets a proposal at a time


def wait_for_threads(seconds: float) -> None:
    """Wait for the suggestions that closed queues still make, at most so long for each."""
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD):
            thread.join(seconds)


class SuggestionQueue:
    """Asks the suggester when a proposal is taken: same seed and results, same proposals.

    Used from the controller's thread.

    Args:
        proposer: makes the proposals.
        note: called with a message when another suggester had to propose.

    Attributes:
        ready: proposals that were made and not yet taken.
        seconds: how long each of the latest suggestions took.
        state: current activity, in words.
        prospects: what the latest suggestions promised, as far as it is known.
    """

    def __init__(self, proposer: Proposer, *, note: Callable[[str], None] | None = None) -> None:
        self._proposer = proposer
        self._note = note
        self.ready: list[Proposal] = []
        self._exhausted = False
        self.seconds: deque[float] = deque(maxlen=1000)
        self.state = "idle"
        self.prospects: deque[Prospect] = deque(maxlen=NUM_PROSPECTS)

    @property
    def exhausted(self) -> bool:
        """Whether the space has no more configurations and none is ready."""
        return self._exhausted and not self.ready

    def take(self, history: TrialIndex, count: int, *, last_part: bool = False) -> list[Proposal]:
        """At most `count` proposals for slots that are free now.

        Args:
            history: all trials.
            last_part: whether only the last part of the budget is left, in which trials may repeat.

        Raises:
            AutomlError: the suggester has failed too often.
        """
        if not self.exhausted:
            self._account(
                self._proposer.propose(history.known, history.pending, count, last_part=last_part)
            )
        found, self.ready = self.ready, []
        return found

    def prepare(
        self, history: TrialIndex, trial_seconds: float = 0.0, *, last_part: bool = False
    ) -> None:
        """While every slot is busy: import what is needed, and make the next proposal ahead.

        Only a queue with a thread does so.

        Args:
            trial_seconds: how long a trial takes. One proposal is made ahead if it takes less time
                than that; 0 for none.
        """

    def restrict(self, domain: Domain | None = None, make: MakeSuggester | None = None) -> None:
        """Propose only within the domain, by a suggester that `make` makes, from now on.

        Args:
            domain, make: None for those that there are.
        """
        self._proposer.restrict(domain, make)
        self.ready.clear()
        self._exhausted = False

    def close(self) -> None:
        """End the background work."""

    def _account(self, batch: ProposalBatch) -> None:
        self.ready, self._exhausted = batch.proposals, not batch.proposals
        self.seconds.extend(batch.seconds / len(self.ready) for _ in self.ready)
        if batch.prospect is not None:
            self.prospects.append(batch.prospect)
        if batch.note and self._note is not None:
            self._note(batch.note)

    def settled(self) -> Prospect | None:
        """The latest prospect if each of the latest few promises too little; else None.

        A gain below the standard error of the recommendation is too little.
        """
        small = [one for one in self.prospects if one.gain < one.error]
        return small[-1] if len(small) == NUM_PROSPECTS else None


class BackgroundSuggestionQueue(SuggestionQueue):
    """Makes proposals in a thread, so that the controller can serve its workers meanwhile.

    A proposal is begun once a slot is free, so that it knows every outcome before it. With a single
    slot the proposals are those of `SuggestionQueue`.

    Args:
        proposer: makes the proposals; used only in the thread.
        note: called with a message when another suggester had to propose.
    """

    def __init__(self, proposer: Proposer, *, note: Callable[[str], None] | None = None) -> None:
        super().__init__(proposer, note=note)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=THREAD)
        self._answer: Future[ProposalBatch] | None = None  # that is being made
        self._seen: tuple[int, int] | None = None  # numbers of trials that the latest one knows
        self._warm = False
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)

    def take(self, history: TrialIndex, count: int, *, last_part: bool = False) -> list[Proposal]:
        """Those that are ready; if there are none, they are begun."""
        self._collect()
        if not self.ready:
            self._begin(history, max(1, count // FREE_SLOTS), last_part)
        found, self.ready = self.ready[:count], self.ready[count:]
        return found

    def prepare(
        self, history: TrialIndex, trial_seconds: float = 0.0, *, last_part: bool = False
    ) -> None:
        """See `SuggestionQueue.prepare`. New results replace a proposal by a newer one."""
        self._collect()
        if not self._warm:
            self._warm = True
            self._thread.submit(self._proposer.warm)
        latest = list(self.seconds)[-NUM_TIMED:]
        news = (len(history.known), len(history.pending)) != self._seen
        if latest and news and sum(latest) / len(latest) < trial_seconds:
            self._begin(history, 1, last_part)

    def restrict(self, domain: Domain | None = None, make: MakeSuggester | None = None) -> None:
        """See `SuggestionQueue.restrict`; the answer that the thread is making now is dropped."""
        super().restrict(domain, make)
        self._answer = self._seen = None

    def close(self) -> None:
        """Let the thread end, after the suggestion that it is making.

        The sweep does not wait for it, but the end of the program does, before Python clears its
        modules: it would abort the process if torch computes in a thread, and an import of torch
        would print tracebacks.
        """
        sys.setswitchinterval(self._switch_interval)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, history: TrialIndex, count: int, last_part: bool) -> None:
        """Begin a proposal unless one is being made, or there are no more."""
        if self._answer is None and not self.exhausted:
            self.state = "suggesting"
            known, pending = list(history.known), history.pending
            self._seen = len(known), len(pending)
            propose = self._proposer.propose
            self._answer = self._thread.submit(propose, known, pending, count, last_part=last_part)

    def _collect(self) -> None:
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            self._account(answer.result())
            self.state = "1 ready" if self.ready else "idle"
