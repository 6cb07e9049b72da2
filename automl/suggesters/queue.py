"""Queues of proposals for the controller: made when they are taken, or ahead in a thread."""

import math
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from automl.core import Trial, TrialIndex, TrialState
from search_spaces import Space

from ._new_points import TrialKeys
from .base import Prospect, Suggester
from .domain import Domain
from .proposer import FALLBACK, Proposal, ProposalBatch, Proposer

SWITCH_SECONDS: Final = 0.0005  # Python's 5 ms would delay the controller beside the thread
THREAD: Final = "automl-suggester"
EXIT_SECONDS: Final = 60.0  # that the end of the program waits for a suggestion
AT_ONCE: Final = 16  # if trials are quicker than suggestions: `bayes` makes them in the time of one
NUM_GAINS: Final = 3  # a sweep ends after this many expected gains in a row that are too small


def wait_for_threads(seconds: float) -> None:
    """Wait for the suggestions that closed queues still make, at most so long for each."""
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(seconds)


class SuggestionQueue:
    """Asks the suggester when a proposal is taken: same seed and results, same proposals.

    Used from the controller's thread.

    Args:
        proposer: makes the proposals.
        num_slots: of the sweep. With very many, trials are proposed in batches, which costs less.
        note: called with a message when another suggester had to propose.

    Attributes:
        seconds: how long each of the latest suggestions took.
        num_made: how many there were.
        state: current activity, in words.
        gains: expected gains of the latest trials, as far as they are known.
        prospects: what the latest suggestions promised, likewise.
    """

    def __init__(
        self, proposer: Proposer, num_slots: int = 1, *, note: Callable[[str], None] | None = None
    ) -> None:
        self._proposer = proposer
        self._num_slots = num_slots
        self._note = note
        self._ready: deque[Proposal] = deque()
        self._exhausted = False
        self.seconds: deque[float] = deque(maxlen=1000)
        self._batches: deque[float] = deque(maxlen=20)  # seconds of a suggestion, by batch
        self.num_made = 0
        self.state = "idle"
        self.gains: deque[float] = deque(maxlen=NUM_GAINS)
        self.prospects: deque[Prospect] = deque(maxlen=NUM_GAINS)

    @property
    def exhausted(self) -> bool:
        """Whether the space has no more configurations and none is ready."""
        return self._exhausted and not self._ready

    @property
    def ready(self) -> Sequence[Proposal]:
        """Proposals made ahead, the next one first; newer ones may still replace them."""
        return self._ready

    def take(self, history: TrialIndex, count: int) -> list[Proposal]:
        """At most `count` proposals that are ready now.

        Raises:
            AutomlError: the suggester has failed too often.
        """
        if len(self._ready) < count and not self._exhausted:
            pending = history.pending
            batch_size = self._batch_size(len(history.known) + len(pending))
            wanted = max(count - len(self._ready), batch_size)
            ahead = [Trial(2**31 + i, p.params, source=p.source) for i, p in enumerate(self._ready)]
            batch = self._proposer.propose(history.known, pending + ahead, wanted)
            self._account(batch)
            self._ready.extend(batch.proposals)
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def prepare(
        self, history: TrialIndex, wanted: int, period: float, patience: float = math.inf
    ) -> None:
        """Make proposals ahead, if this queue does.

        Args:
            wanted: how many will still be taken, at most.
            period: seconds between two of them, about.
            patience: seconds that a worker may wait before it gets a proposal of the fallback.
        """

    def restrict(self, domain: Domain) -> None:
        """Propose only within the domain, from the next proposal on."""
        self._proposer.restrict(domain)
        self._ready = deque(proposal for proposal in self._ready if domain.legal(proposal.params))
        self._exhausted = False

    def remake(self, make: Callable[[str, Domain], Suggester]) -> None:
        """Make the suggester anew by this function, such as one for another budget."""
        self._proposer.remake(make)

    def close(self) -> None:
        """End the background work."""

    def _batch_size(self, num_trials: int) -> int:
        """A part of the slots and of the trials, so that a trial costs the same however many."""
        return max(1, self._num_slots // 64, min(num_trials // 50, self._num_slots // 8))

    def _account(self, batch: ProposalBatch) -> None:
        self._exhausted = batch.exhausted
        self.num_made += len(batch.proposals)
        if batch.proposals:
            each = batch.seconds / len(batch.proposals)
            self.seconds.extend([each] * len(batch.proposals))
            self._batches.append(each)
        if batch.gain is not None:
            self.gains.append(batch.gain)
        if batch.prospect is not None:
            self.prospects.append(batch.prospect)
        if batch.note and self._note is not None:
            self._note(batch.note)

    def worth(self, gain: float | None) -> bool:
        """Whether another trial is worthwhile: the latest few may gain at least `gain`."""
        return gain is None or len(self.gains) < NUM_GAINS or max(self.gains) >= gain

    def settled(self, least: float) -> Prospect | None:
        """The latest prospect if each of the latest few promises too little; else None.

        Args:
            least: a gain below it is too little, and so is one below the standard error of the
                recommendation.
        """
        few = len(self.prospects) < NUM_GAINS
        if few or any(one.gain >= max(one.error, least) for one in self.prospects):
            return None
        return self.prospects[-1]


class BackgroundSuggestionQueue(SuggestionQueue):
    """Keeps proposals ready, made by a thread while the workers train.

    New results replace the proposals that are ready by newer ones. If trials are so short that
    several end while one batch is made, ready proposals count as pending and newer ones go first.

    Args:
        proposer: makes the proposals; used only in the thread, except for its fallback.
        space: tells whether a ready proposal has become a trial meanwhile.
        depth: how many proposals are kept ready if trials are long.
        note: called with a message when another suggester had to propose.
    """

    def __init__(
        self,
        proposer: Proposer,
        space: Space,
        depth: int,
        *,
        note: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(proposer, note=note)
        self._keys = TrialKeys(space)
        self._space = space
        self._depth = depth
        self._unseen = 0  # number of the first trial that is newer than the request
        self._seen: tuple[int, int] | None = None
        self._condition = threading.Condition()
        self._request: tuple[list[Trial], list[Trial], int] | None = None
        self._answer: ProposalBatch | Exception | None = None
        self._keep = False  # ready proposals stay when newer ones come
        self._slow = False  # the note about a slow suggester was written
        self._stale = False  # the limits have changed since the request
        self._patience = math.inf
        self._waiting_since: float | None = None
        self._busy = False
        self._closed = False
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
        self._thread.start()

    def take(self, history: TrialIndex, count: int) -> list[Proposal]:
        """Ready proposals, the newest first; one of the fallback after too long a wait."""
        self._collect(history)
        if self._ready or self._exhausted:
            self._waiting_since = None
            return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if time.monotonic() - self._waiting_since <= self._patience:
            return []
        self._waiting_since = None
        return self._fall_back(history)

    def prepare(
        self, history: TrialIndex, wanted: int, period: float, patience: float = math.inf
    ) -> None:
        """Ask an idle thread for more if there are new results or too few proposals."""
        self._collect(history)
        self._patience = patience
        if self._busy:
            self.state = "suggesting"
        else:
            self.state = f"{len(self._ready)} ready" if self._ready else "idle"
        later = list(self._batches)[1:]  # the first may have imported torch
        each = sum(later) / len(later) if later else 0.0
        hurried = each > period / 4
        version = (len(history.known), len(history.pending))
        depth = min(wanted, self._depth if not hurried else self._depth * 4)
        if version == (0, 0):
            depth = min(depth, 1)  # alone it takes no time, and a worker waits for it
        if (
            self._busy
            or self._exhausted
            or depth <= 0
            or (version == self._seen and len(self._ready) >= depth)
        ):
            return
        count = depth
        if hurried:
            count = max(min(depth - len(self._ready), math.ceil(depth / 2)), 0)
            if count and 2 * each > period:  # one by one they would be made just in time
                count = min(wanted, AT_ONCE)
        if count == 0:
            return
        self._seen = version
        self._unseen = version[0] + version[1]
        self._keep = hurried
        self._ask(list(history.known), self._pending(history), count)

    def restrict(self, domain: Domain) -> None:
        """See `SuggestionQueue.restrict`; the answer that the thread is making now is dropped."""
        super().restrict(domain)
        self._seen = None
        self._stale = self._busy

    def close(self) -> None:
        """Let the thread end, after the suggestion that it is making.

        The sweep does not wait for it, but the end of the program does, before Python clears its
        modules: it would abort the process if torch computes in a thread, and an import of torch
        would print tracebacks.
        """
        sys.setswitchinterval(self._switch_interval)
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            threading.Thread(target=self._thread.join, args=(EXIT_SECONDS,)).start()

    def _fall_back(self, history: TrialIndex) -> list[Proposal]:
        """A proposal that takes no time, because a worker has waited too long."""
        if not self._slow and self._note is not None:
            self._slow = True
            self._note(
                f"used a {FALLBACK} point: {self._proposer.name!r} is slower than the trials"
            )
        return self._proposer.propose_fallback(history.known, history.pending, 1)

    def _pending(self, history: TrialIndex) -> list[Trial]:
        """Pending trials, and ready proposals if they are kept, under the numbers they may get."""
        pending = history.pending
        if not self._keep:
            return pending
        first = 1 + max(
            [t.number for t in pending[-1:]] + [t.number for t in history.known[-1:]], default=-1
        )
        waiting = [
            Trial(first + i, p.params, TrialState.WAITING, source=p.source)
            for i, p in enumerate(self._ready)
        ]
        return pending + waiting

    def _collect(self, history: TrialIndex) -> None:
        with self._condition:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        self._busy = False
        if self._stale:
            self._stale = False
            return
        if isinstance(answer, Exception):
            raise answer
        pending = self._keys(history.pending)
        begun = pending | self._keys(history.known[bisect_left(history.numbers, self._unseen) :])
        self._account(answer)
        self._ready = deque(
            proposal
            for proposal in [*answer.proposals, *(self._ready if self._keep else ())]
            if self._space.key(proposal.params)
            not in (begun if proposal.replicate_of is None else pending)
        )

    def _ask(self, known: list[Trial], pending: Sequence[Trial], count: int) -> None:
        with self._condition:
            self._busy = True
            self._request = (known, list(pending), count)
            self._condition.notify()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._request is not None or self._closed)
                if self._closed or self._request is None:
                    return
                request, self._request = self._request, None
            answer: ProposalBatch | Exception
            try:
                answer = self._proposer.propose(*request)
            except Exception as error:  # raised again in the controller's thread
                answer = error
            with self._condition:
                self._answer = answer
            if request[1]:  # trials run
                self._proposer.warm()
