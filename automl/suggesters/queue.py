"""Proposals for the controller: made when they are asked for, or ahead of time by a thread."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from automl.core.trial import Trial, TrialState
from automl.core.trial_index import TrialIndex
from search_spaces import Space

from .base import Suggester
from .domain import Limits
from .proposer import FALLBACK, Batch, Proposal, Proposer

SWITCH_SECONDS: Final = (
    0.0005  # the thread must not keep the controller from its mail for Python's 5 ms at a time
)
NUM_GAINS: Final = 3  # suggestions in a row that must expect too little before a sweep ends for it


class Suggestions:
    """Asks the suggester when a proposal is taken: the same seed and results give the same proposals.

    Used from the controller's thread.

    Args:
        num_slots: of the sweep; of very many, trials are proposed in bulk, which costs each of them less.
        note: is told when a suggester failed and another one stepped in.
        within: makes what builds suggesters that keep within limits.
        seconds: how long each suggestion took.
        state: what is being done, in words.
        gains: what the latest trials were expected to gain, where that is known.
    """

    def __init__(self, proposer: Proposer, num_slots: int = 1) -> None:
        self._proposer, self._num_slots = proposer, num_slots
        self.within: Callable[[Limits], Callable[[str], Suggester]] | None = None
        self._ready: deque[Proposal] = deque()
        self.note: Callable[[str], None] = lambda message: None
        self._exhausted = False
        self.seconds: deque[float] = deque(maxlen=1000)
        self.state = "idle"
        self.gains: deque[float] = deque(maxlen=NUM_GAINS)

    @property
    def exhausted(self) -> bool:
        """Whether the space has no more configurations and none is ready."""
        return self._exhausted and not self._ready

    @property
    def ready(self) -> Sequence[Proposal]:
        """Proposals that were made ahead, the next one first; fresher ones may yet replace them."""
        return self._ready

    def take(self, history: TrialIndex, count: int) -> list[Proposal]:
        """At most `count` proposals, those that are ready now; raises AutomlError where suggesting has failed."""
        if len(self._ready) < count and not self._exhausted:
            pending = history.pending
            bulk = max(count - len(self._ready), self._bulk(len(history.known) + len(pending)))
            ahead = [Trial(2**31 + i, p.params, source=p.source) for i, p in enumerate(self._ready)]
            batch = self._proposer.propose(history.known, pending + ahead, bulk)
            self._account(batch)
            self._ready.extend(batch.proposals)
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def prepare(
        self, history: TrialIndex, wanted: int, period: float, patience: float = math.inf
    ) -> None:
        """Make proposals ready: at most `wanted` will still be taken, one every `period` seconds or so.

        Args:
            patience: seconds that a worker may wait for a proposal before it gets one of the fallback's.
        """

    def restrict(self, limits: Limits, narrow: Space) -> None:
        """Propose only within the limits, which leave the space `narrow`, from the next proposal on."""
        if self.within is not None:
            self._proposer.change(self.within(limits))
        self._ready = deque(proposal for proposal in self._ready if narrow.legal(proposal.params))
        self._exhausted = False

    def close(self) -> None:
        """End what runs in the background."""

    def _bulk(self, num_trials: int) -> int:
        """Parts of the slots and of the trials, so that the cost of a trial does not grow with either."""
        return max(1, self._num_slots // 64, min(num_trials // 50, self._num_slots // 8))

    def _account(self, batch: Batch) -> None:
        self._exhausted = batch.exhausted
        if batch.proposals:
            self.seconds.extend([batch.seconds / len(batch.proposals)] * len(batch.proposals))
        if batch.gain is not None:
            self.gains.append(batch.gain)
        if batch.note:
            self.note(batch.note)

    def worth(self, gain: float | None) -> bool:
        """Whether another trial is: the latest few were not all expected to gain less."""
        return gain is None or len(self.gains) < NUM_GAINS or max(self.gains) >= gain


class Ahead(Suggestions):
    """Keeps proposals ready, made by a thread while the workers train, and refreshed when results arrive.

    Proposals are usually replaced by fresher ones as soon as these are there. Where trials are so short that several
    end while one batch is made, what is ready counts as pending instead, and the fresh ones come on top.

    Args:
        space: to recognise a proposal that has been taken up in the meantime.
        depth: how many proposals are kept ready where trials are long.
    """

    def __init__(self, proposer: Proposer, space: Space, depth: int) -> None:
        super().__init__(proposer)
        self._space, self._depth = space, depth
        self._seen: tuple[int, int] | None = None
        self._condition = threading.Condition()
        self._request: tuple[list[Trial], list[Trial], int] | None = None
        self._answer: Batch | Exception | None = None
        self._keep = self._slow = self._stale = False
        self._patience = math.inf
        self._waiting_since: float | None = None
        self._busy = self._closed = False
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread = threading.Thread(target=self._work, name="automl-suggester", daemon=True)
        self._thread.start()

    def take(self, history: TrialIndex, count: int) -> list[Proposal]:
        """What is ready, the freshest first; after a wait for longer than is sensible one of the fallback's."""
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
        """Ask the thread for more where it is idle, and there are new results or too few are ready."""
        self._collect(history)
        self._patience = patience
        self.state = (
            "suggesting" if self._busy else f"{len(self._ready)} ready" if self._ready else "idle"
        )
        each = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0
        hurried = each > period / 4
        depth = min(wanted, self._depth if not hurried else self._depth * 4)
        version = (len(history.known), len(history.pending))
        if (
            self._busy
            or self._exhausted
            or depth <= 0
            or (version == self._seen and len(self._ready) >= depth)
        ):
            return
        count = (
            depth if not hurried else max(min(depth - len(self._ready), math.ceil(depth / 2)), 0)
        )
        if count == 0:
            return
        self._seen, self._keep = version, hurried
        self._ask(list(history.known), self._pending(history), count)

    def restrict(self, limits: Limits, narrow: Space) -> None:
        """See `Suggestions.restrict`; what the thread is making now is dropped."""
        super().restrict(limits, narrow)
        self._seen, self._stale = None, self._busy

    def close(self) -> None:
        """Let the thread end; one that is in the middle of a suggestion ends after it."""
        sys.setswitchinterval(self._switch_interval)
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _fall_back(self, history: TrialIndex) -> list[Proposal]:
        """A worker would wait for longer than trials are worth: a proposal that takes no time."""
        if not self._slow:
            self._slow = True
            self.note(
                f"{self._proposer.name!r} takes longer than trials can wait: {FALLBACK} proposes now and then"
            )
        return self._proposer.instead(history.known, history.pending, 1)

    def _pending(self, history: TrialIndex) -> list[Trial]:
        """Pending trials; what is ready counts among them, under the numbers that it may get, where it is kept."""
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
        pending = {self._space.key(trial.params) for trial in history.pending}
        fresh = [p for p in answer.proposals if self._space.key(p.params) not in pending]
        self._account(answer)
        self._ready = deque([*fresh, *self._ready] if self._keep else fresh)

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
            answer: Batch | Exception
            try:
                answer = self._proposer.propose(*request)
            except Exception as error:  # raised again in the controller's thread
                answer = error
            with self._condition:
                self._answer = answer
