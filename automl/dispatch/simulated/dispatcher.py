"""Trials on a virtual clock: thousands of workers, hours in seconds, and the same every time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from automl.dispatch.base import Dispatcher
from automl.errors import TrialFailure, UsageError
from workers.protocol import (
    Assignment,
    Ending,
    Event,
    Halt,
    Metrics,
    Outcome,
    Report,
    Started,
    lost,
)

from .faults import Fault, Outage

Replay = Callable[[Any], Iterable[tuple[float, Mapping[str, float]]]]
_Key = tuple[int, int]
_ENDINGS: Final = {
    Halt.STOP: Ending.STOPPED,
    Halt.PAUSE: Ending.PAUSED,
    Halt.INTERRUPT: Ending.INTERRUPTED,
}


@dataclass
class _Curve:
    """A trial's generator, kept over its attempts: what it has yielded is never computed again."""

    items: Iterator[tuple[float, Mapping[str, float]]]
    step: int = 0
    seconds: float = 0.0
    ahead: tuple[float, Metrics] | None = None  # yielded, its report not yet due


@dataclass
class _Attempt:
    assignment: Assignment
    slots: list[int]
    begun: float
    at: float  # up to when it has worked
    slowness: float
    sequence: int = 0

    @property
    def key(self) -> _Key:
        return self.assignment.trial, self.assignment.attempt


class SimulatedDispatcher(Dispatcher):
    """Replays trials; time is what their generators say it is.

    Every report counts as a checkpoint: an attempt whose worker is lost is taken up again after its last report, and
    a paused trial goes on with the very generator that it had. Only the moment of decision is idealised: what the
    controller answers to a report reaches the worker before it goes on.

    Args:
        replay: from params to (seconds since the last report, metrics), in order.
        num_slots: workers.
        max_steps: after so many reports a trial is complete; None for as many as its generator has.
        charged: the clock runs while the controller thinks.
        faults: what goes wrong.
        seed: of the faults.
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
        faults: Sequence[Fault] = (),
        seed: int = 0,
    ) -> None:
        self.num_slots = num_slots
        self._replay, self._max_steps, self._faults, self._seed = (
            replay,
            max_steps,
            tuple(faults),
            seed,
        )
        self._charged = charged
        self._clock = 0.0
        self._free = list(range(num_slots))  # a heap
        self._away: set[int] = set()
        self._curves: dict[int, _Curve] = {}
        self._attempts: dict[_Key, _Attempt] = {}
        self._ready: list[
            _Attempt
        ] = []  # have begun or reported, their next report is not yet known
        self._news: list[tuple[_Attempt, Event]] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._num_entries = 0
        for outage in (o for fault in faults for o in fault.outages(num_slots)):
            self._plan(outage.begin, lambda outage=outage: self._lose(outage))  # type: ignore[misc]

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers have nothing to do."""
        return len(self._free)

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt now, on the virtual clock."""
        if assignment.num_ranks > len(self._free):
            raise UsageError(
                f"the attempt needs {assignment.num_ranks} free slots, there are {len(self._free)}"
            )
        slots = [heapq.heappop(self._free) for _ in range(assignment.num_ranks)]
        delay, slowness, life = self._fate(assignment)
        attempt = _Attempt(assignment, slots, self._clock, self._clock + delay, slowness)
        self._attempts[attempt.key] = attempt
        if life < math.inf:
            self._plan(self._clock + life, lambda: self._crash(attempt, "its worker died"))
        self._news.append((attempt, Started(*attempt.key, f"slot {slots[0]}")))
        self._ready.append(attempt)

    def halt(self, trial: int, attempt: int, how: Halt) -> None:
        """End an attempt now: what it was in the middle of is lost, or kept for when it is resumed."""
        if found := self._attempts.get((trial, attempt)):
            self._end(
                found, Outcome(trial, attempt, _ENDINGS[how], seconds=self._clock - found.begun)
            )

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End an attempt by force."""
        if found := self._attempts.get((trial, attempt)):
            self._end(
                found,
                lost(found.assignment, message, failure=failure, seconds=self._clock - found.begun),
            )

    def poll(self, handle: Callable[[Event], None], timeout: float) -> int:
        """Pass on what happens at the next moment at which something happens, at most `timeout` virtual seconds away.

        Whatever happens at one moment is passed on together.
        """
        ready, self._ready = self._ready, []
        for attempt in ready:
            if attempt.key in self._attempts:
                self._work(attempt)
        if not self._news:
            self._advance(self._clock + timeout)
        news, self._news = self._news, []
        for attempt, event in news:
            if isinstance(event, Outcome):
                self._give_back(attempt)
            elif isinstance(event, Report):
                self._ready.append(attempt)
            self._notice(event)
            handle(event)
        return len(news)

    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self._clock

    def spend(self, seconds: float) -> None:
        """Where it is charged, let time pass: workers go on meanwhile, their reports wait to be read."""
        if self._charged:
            self._clock += seconds

    def close(self) -> None:
        """Drop every generator."""
        self._curves.clear()
        self._attempts.clear()

    def _notice(self, event: Event) -> None:
        """For those who watch."""

    def _fate(self, assignment: Assignment) -> tuple[float, float, float]:
        """Seconds until an attempt begins to work, how many times slower it is, and seconds until its worker dies."""
        delay, slowness, life = 0.0, 1.0, math.inf
        for i, fault in enumerate(self._faults):
            rng = np.random.default_rng([self._seed, i, assignment.trial, assignment.attempt])
            delay += fault.delay(assignment, rng)
            slowness *= fault.slowness(assignment, rng)
            life = min(life, fault.lifetime(assignment, rng))
        return delay, slowness, life

    # ------------------------------------------------------------------ what happens when

    def _plan(self, at: float, action: Callable[[], None]) -> None:
        self._num_entries += 1
        heapq.heappush(self._agenda, (at, self._num_entries, action))

    def _advance(self, limit: float) -> None:
        """Do what is due at the next moment that brings news; the clock stops at the limit."""
        while self._agenda and not self._news and self._agenda[0][0] <= limit:
            moment = self._agenda[0][0]
            self._clock = max(self._clock, moment)
            while self._agenda and self._agenda[0][0] <= moment:
                heapq.heappop(self._agenda)[2]()
        if not self._news and math.isfinite(limit):
            self._clock = max(self._clock, limit)

    def _work(self, attempt: _Attempt) -> None:
        """Find out what comes next of an attempt, and when."""
        try:
            seconds = self._pull(attempt)
        except StopIteration as stop:
            self._complete(attempt, stop.value)
        except UsageError:
            raise
        except Exception as error:  # the trial's own failure, as in a real worker
            self._fail(attempt, error)
        else:
            due = attempt.at + seconds * attempt.slowness
            self._plan(due, lambda: self._report(attempt, due))

    def _pull(self, attempt: _Attempt) -> float:
        """Seconds to the next report, which is kept; raises StopIteration after the last one."""
        number = attempt.assignment.trial
        curve = self._curves.get(number)
        if curve is None:
            curve = self._curves[number] = _Curve(
                iter(self._replay(dict(attempt.assignment.params)))
            )
        if self._max_steps is not None and curve.step >= self._max_steps:
            raise StopIteration
        if curve.ahead is None:
            curve.ahead = _checked(next(curve.items))
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
        self._news.append((attempt, report))

    def _complete(self, attempt: _Attempt, returned: object = None) -> None:
        metrics = (
            {str(k): float(v) for k, v in returned.items()} if isinstance(returned, Mapping) else {}
        )
        self._end(
            attempt,
            Outcome(*attempt.key, Ending.COMPLETED, metrics, seconds=attempt.at - attempt.begun),
        )

    def _fail(self, attempt: _Attempt, error: Exception) -> None:
        kind = error.kind if isinstance(error, TrialFailure) else "crashed"
        text = str(error) if isinstance(error, TrialFailure) else f"{type(error).__name__}: {error}"
        seconds = attempt.at - attempt.begun
        self._end(
            attempt,
            Outcome(*attempt.key, Ending.FAILED, failure=kind, message=text, seconds=seconds),
        )

    def _crash(self, attempt: _Attempt, why: str) -> None:
        if attempt.key in self._attempts:
            self._end(attempt, lost(attempt.assignment, why, seconds=self._clock - attempt.begun))

    def _lose(self, outage: Outage) -> None:
        """A node goes: its slots are nobody's until it is back."""
        gone = set(range(outage.first, outage.last + 1))
        self._away |= gone
        self._free = [slot for slot in self._free if slot not in gone]
        heapq.heapify(self._free)
        for attempt in [a for a in self._attempts.values() if gone & set(a.slots)]:
            self._crash(attempt, "its node was lost")
        if math.isfinite(outage.end):
            self._plan(outage.end, lambda: self._return(gone))

    def _return(self, gone: set[int]) -> None:
        back = gone & self._away
        self._away -= back
        for slot in back:
            heapq.heappush(self._free, slot)

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        del self._attempts[attempt.key]
        self._news.append((attempt, outcome))
        final = outcome.ending in (Ending.COMPLETED, Ending.STOPPED)
        own_failure = outcome.ending is Ending.FAILED and not outcome.details.get("worker_lost")
        if final or own_failure:
            self._curves.pop(attempt.assignment.trial, None)

    def _give_back(self, attempt: _Attempt) -> None:
        for slot in attempt.slots:
            if slot not in self._away:
                heapq.heappush(self._free, slot)


def _checked(item: object) -> tuple[float, Metrics]:
    try:
        seconds, metrics = item  # type: ignore[misc]
        found = float(seconds), {str(key): float(value) for key, value in metrics.items()}  # type: ignore[has-type]
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"a replay yields (seconds, metrics), got {item!r:.100}") from error
    if not (math.isfinite(found[0]) and found[0] >= 0):
        raise UsageError(
            f"the seconds that a replay yields are finite and not negative, got {found[0]}"
        )
    return found
