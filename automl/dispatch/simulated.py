"""Replays trials on a virtual clock: thousands of workers, hours in seconds, repeatable."""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from automl.dispatch.base import Dispatcher, T
from automl.errors import TrialFailure, UsageError
from workers.functions.numbers import returned as metrics_of
from workers.protocol import (
    Assignment,
    Ending,
    Event,
    Metrics,
    Outcome,
    Report,
    Started,
    StopRequest,
    lost,
)

Replay = Callable[[Any], Iterable[tuple[float, Mapping[str, float] | float]]]
_Key = tuple[int, int]


@dataclass
class _Curve:
    """A trial's generator. It is kept over attempts, so that no item is computed twice."""

    items: Iterator[tuple[float, Mapping[str, float] | float]]
    step: int = 0
    seconds: float = 0.0
    ahead: tuple[float, Metrics] | None = None  # an item whose report is not due yet


@dataclass
class _Attempt:
    assignment: Assignment
    slots: list[int]
    begun: float
    at: float  # it has worked until this time
    sequence: int = 0

    @property
    def key(self) -> _Key:
        return self.assignment.trial, self.assignment.attempt


class SimulatedDispatcher(Dispatcher):
    """Replays trials; their generators define the time.

    Every report counts as a checkpoint: if a worker is lost, the next attempt goes on after the
    last report, and a paused trial keeps its generator. One thing is idealised: the controller's
    answer to a report reaches the worker before it goes on.

    Args:
        replay: from params to (seconds since the last report, metrics), in order.
        num_slots: number of workers.
        max_steps: a trial is complete after this many reports; None for all that its generator has.
        charged: the clock advances while the controller computes.
        mean_lifetime: seconds after which a worker dies, in the mean.
        seed: of the deaths.
        on_event: called with each event and its time, before the controller gets it.
    """

    name = "simulated"
    keeps_paused: ClassVar[bool] = True
    patience: ClassVar[float] = math.inf

    def __init__(
        self,
        replay: Replay,
        num_slots: int,
        *,
        max_steps: int | None = None,
        charged: bool = False,
        mean_lifetime: float = math.inf,
        seed: int = 0,
        on_event: Callable[[Event, float], None] = lambda event, now: None,
    ) -> None:
        super().__init__()
        self.num_slots = num_slots
        self._replay = replay
        self._max_steps = max_steps
        self._mean_lifetime = mean_lifetime
        self._seed = seed
        self._charged = charged
        self._on_event = on_event
        self._clock = 0.0
        self._free = list(range(num_slots))  # a heap
        self._curves: dict[int, _Curve] = {}
        self._attempts: dict[_Key, _Attempt] = {}
        self._ready: list[_Attempt] = []  # have begun or reported; their next report is not known
        self._events: list[tuple[_Attempt, Event]] = []  # for the next poll
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._num_entries = 0

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        return len(self._free)

    def submit(self, assignment: Assignment) -> None:
        slots = [heapq.heappop(self._free) for _ in range(assignment.num_ranks)]
        attempt = _Attempt(assignment, slots, self._clock, self._clock)
        self._attempts[attempt.key] = attempt
        if self._mean_lifetime < math.inf:
            rng = np.random.default_rng([self._seed, assignment.trial, assignment.attempt])
            dies = self._clock + float(rng.exponential(self._mean_lifetime))
            self._plan(dies, lambda: self._crash(attempt))
        self._events.append((attempt, Started(*attempt.key, f"slot {slots[0]}")))
        self._ready.append(attempt)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """End an attempt now; its unfinished step is kept only if the trial may be resumed."""
        if found := self._attempts.get((trial, attempt)):
            self._end(found, Outcome(trial, attempt, how.ending, seconds=self._clock - found.begun))

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        if found := self._attempts.get((trial, attempt)):
            seconds = self._clock - found.begun
            self._end(found, lost(found.assignment, message, failure=failure, seconds=seconds))

    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        """Advance the clock to the next events, by at most `timeout` virtual seconds.

        All events of one moment are handled together.
        """
        ready, self._ready = self._ready, []
        for attempt in ready:
            if attempt.key in self._attempts:
                self._work(attempt)
        if not self._events:
            self._advance(self._clock + timeout)
        events, self._events = self._events, []
        for attempt, event in events:
            if isinstance(event, Outcome):
                for slot in attempt.slots:
                    heapq.heappush(self._free, slot)
            elif isinstance(event, Report):
                self._ready.append(attempt)
            self._on_event(event, self._clock)
            handle(event)

    def now(self) -> float:
        return self._clock

    def charged(self, compute: Callable[[], T]) -> T:
        """If `charged`, advance the clock: workers go on meanwhile, and their reports wait."""
        begun = time.perf_counter()
        result = compute()
        if self._charged:
            self._clock += time.perf_counter() - begun
        return result

    def close(self) -> None:
        self._curves.clear()
        self._attempts.clear()

    # ------------------------------------------------------------------ the agenda

    def _plan(self, at: float, action: Callable[[], None]) -> None:
        self._num_entries += 1
        heapq.heappush(self._agenda, (at, self._num_entries, action))

    def _advance(self, limit: float) -> None:
        """Do all that is due up to the next moment with an event; the clock stops at the limit."""
        while self._agenda and not self._events and self._agenda[0][0] <= limit:
            moment = self._agenda[0][0]
            self._clock = max(self._clock, moment)
            while self._agenda and self._agenda[0][0] <= moment:
                heapq.heappop(self._agenda)[2]()
        if not self._events and math.isfinite(limit):
            self._clock = max(self._clock, limit)

    def _work(self, attempt: _Attempt) -> None:
        """Compute the next report of an attempt and put it on the agenda."""
        try:
            seconds = self._pull(attempt)
        except StopIteration as stop:
            self._complete(attempt, stop.value)
        except UsageError:
            raise
        except Exception as error:  # a failure of the trial, as in a real worker
            self._fail(attempt, error)
        else:
            due = attempt.at + seconds
            self._plan(due, lambda: self._report(attempt, due))

    def _pull(self, attempt: _Attempt) -> float:
        """Seconds to the next report, which is stored; raises StopIteration after the last one."""
        number = attempt.assignment.trial
        curve = self._curves.get(number)
        if curve is None:
            curve = self._curves[number] = _Curve(
                iter(self._replay(dict(attempt.assignment.params)))
            )
        if self._max_steps is not None and curve.step >= self._max_steps:
            raise StopIteration
        if curve.ahead is None:
            curve.ahead = _checked(next(curve.items), attempt.assignment.goals)
        return curve.ahead[0]

    def _report(self, attempt: _Attempt, due: float) -> None:
        if attempt.key not in self._attempts:
            return
        curve = self._curves[attempt.assignment.trial]
        assert curve.ahead is not None
        (_, metrics), curve.ahead = curve.ahead, None
        curve.step += 1
        curve.seconds += due - attempt.at
        attempt.at = due
        report = Report(*attempt.key, attempt.sequence, curve.step, metrics, curve.seconds)
        attempt.sequence += 1
        self._events.append((attempt, report))

    def _complete(self, attempt: _Attempt, returned: object = None) -> None:
        try:
            metrics = metrics_of(returned, attempt.assignment.goals)
        except TrialFailure as error:
            self._fail(attempt, error)
            return
        self._end(
            attempt,
            Outcome(*attempt.key, Ending.COMPLETED, metrics, seconds=attempt.at - attempt.begun),
        )

    def _fail(self, attempt: _Attempt, error: Exception) -> None:
        kind = error.kind if isinstance(error, TrialFailure) else "crashed"
        text = str(error) if isinstance(error, TrialFailure) else f"{type(error).__name__}: {error}"
        seconds, name = attempt.at - attempt.begun, type(error).__name__
        self._end(
            attempt,
            Outcome(
                *attempt.key,
                Ending.FAILED,
                failure=kind,
                message=text,
                seconds=seconds,
                exception=name,
            ),
        )

    def _crash(self, attempt: _Attempt) -> None:
        if attempt.key in self._attempts:
            seconds = self._clock - attempt.begun
            self._end(attempt, lost(attempt.assignment, "its worker died", seconds=seconds))

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        del self._attempts[attempt.key]
        self._events.append((attempt, outcome))
        final = outcome.ending in (Ending.COMPLETED, Ending.STOPPED)
        own_failure = outcome.ending is Ending.FAILED and not outcome.worker_lost
        if final or own_failure:
            self._curves.pop(attempt.assignment.trial, None)


def _checked(item: object, goals: Sequence[str]) -> tuple[float, Metrics]:
    try:
        seconds, result = item  # type: ignore[misc]
        found = float(seconds), metrics_of(result, goals)  # type: ignore[has-type]
    except (TypeError, ValueError, TrialFailure) as error:
        bare = f" or (seconds, {goals[0]})" if len(goals) == 1 else ""
        raise UsageError(f"a replay yields (seconds, metrics){bare}, got {item!r:.100}") from error
    if not (math.isfinite(found[0]) and found[0] >= 0):
        raise UsageError(
            f"the seconds that a replay yields are finite and not negative, got {found[0]}"
        )
    return found
