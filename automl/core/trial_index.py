"""An index of a sweep's trials by state. An update is cheap: nothing is sorted anew."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from .trial import Trial, TrialState


class TrialIndex:
    """The trials of a sweep: waiting, running, and known ones (finished, paused or interrupted)."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._known: list[Trial] = []
        self.numbers: list[int] = []  # of the known trials
        self._running: dict[int, Trial] = {}
        self._leased: dict[int, Trial] = {}
        self.held: set[int] = set()  # numbers of those that people have paused
        self._waiting: dict[int, Trial] = {}
        self._queue: list[int] = []  # a heap of waiting numbers; some may no longer wait
        for trial in trials:
            self.update(trial)

    @property
    def known(self) -> list[Trial]:
        """Finished, paused and interrupted trials, by number; later updates change this list."""
        return self._known

    @property
    def pending(self) -> list[Trial]:
        """Waiting and running trials, by number."""
        both = self._waiting | self._running
        return [both[number] for number in sorted(both)]

    @property
    def running(self) -> list[Trial]:
        """Running trials, in no order."""
        return list(self._running.values())

    @property
    def num_running(self) -> int:
        """How many trials run."""
        return len(self._running)

    def each_running(self) -> Iterator[Trial]:
        """Running trials, in no order; there must be no update while they are looked at."""
        yield from self._running.values()

    @property
    def leased(self) -> list[Trial]:
        """Running trials that agents hold, in no order."""
        return list(self._leased.values())

    @property
    def waiting(self) -> list[Trial]:
        """Waiting trials, by number."""
        return [trial for _, trial in sorted(self._waiting.items())]

    @property
    def next_waiting(self) -> Trial | None:
        """The waiting trial with the lowest number."""
        while self._queue and self._queue[0] not in self._waiting:
            heapq.heappop(self._queue)
        return self._waiting[self._queue[0]] if self._queue else None

    def update(self, trial: Trial) -> None:
        """Add a new trial, or replace one that has changed."""
        number = trial.number
        if trial.held and trial.state is TrialState.PAUSED:
            self.held.add(number)
        else:
            self.held.discard(number)
        if trial.state is TrialState.RUNNING:
            self._waiting.pop(number, None)
            self._running[number] = trial
            if trial.lease is not None:
                self._leased[number] = trial
            else:
                self._leased.pop(number, None)
            return
        self._running.pop(number, None)
        self._leased.pop(number, None)
        place = bisect_left(self.numbers, number)
        known = place < len(self.numbers) and self.numbers[place] == number
        if trial.state is TrialState.WAITING:
            if number not in self._waiting:
                heapq.heappush(self._queue, number)
            self._waiting[number] = trial
            if known:
                del self.numbers[place], self._known[place]
            return
        self._waiting.pop(number, None)
        if known:
            self._known[place] = trial
        else:
            self.numbers.insert(place, number)
            self._known.insert(place, trial)
