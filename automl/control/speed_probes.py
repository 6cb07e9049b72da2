"""Probes settings of speed while a sweep runs, so that its trials train with the fastest.

A probe is a short run of one configuration, see `automl speed`. It is no trial: the log has it as
`ProbeBegun` and `ProbeEnded`, and only the budget of worker time counts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from automl.core import Budget, Goal, SweepSpec, Trial, TrialIndex
from automl.core.probes import PROBE, SPEED, asks_for_speed, measured, settings, speed_names
from automl.core.text import configuration
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError, UsageError
from automl.suggesters.domain import Domain, Limit, updated_limits
from automl.suggesters.queue import SuggestionQueue
from search_spaces import Choice
from workers.protocol import Event, Outcome, Params

from .assignments import Assigner
from .journal import Journal
from .memory_guard import MemoryGuard
from .plugins import Plugins

MAX_SHARE: Final = 0.05  # of the worker time, for all probes of a sweep
UPDATES: Final = 20  # measured of a workload, after those that warm up
REPORTS: Final = 4  # timed of a function or a program, after the first
ENDLESS: Final = 10**9  # updates; the probe ends before
NAME: Final = "speed"
LOST: Final = "preempted"  # the failure of a probe that ended with its sweep; it may run again


def probing(spec: SweepSpec, seconds: float, updates: int | None = None) -> SweepSpec:
    """The sweep whose trials are probes of a sweep.

    Args:
        spec: of the sweep.
        seconds: of the wall clock, for all probes.
        updates: measured in a probe of a workload.

    Raises:
        UsageError: the workload has a trainer of its own, which does not measure speed.
    """
    return replace(
        spec,
        name=NAME,
        goals=(Goal(SPEED, maximize=True, at_end=True),),
        constraints=tuple(one for one in spec.constraints if one.aspects == {"memory"}),
        fixed=_fixed(spec, updates or UPDATES),
        budget=Budget(time=seconds),
        suggester="bayes",
        suggester_options={},
        stopper="none",
        stopper_options={},
        max_steps=None,
        resumable=False,
        beliefs={},
        trackers=(),
        transfer=(),
        earlier={},
        knowledge="none",
        replicates="none",
        artifacts="",
        explored=None,
    )


def _fixed(spec: SweepSpec, updates: int) -> Mapping[str, Any]:
    """The fixed options of a probe: no evaluation, no checkpoint, no end but its own."""
    if spec.workload is None:
        return spec.fixed
    if not any(metric.name == SPEED for metric in spec.metrics):
        raise UsageError(
            f"the workload {spec.workload} has a trainer of its own, which does not report {SPEED}"
        )
    from workers.training.settings import SPEED_WINDOWS

    never = dict.fromkeys(
        (
            "train_seconds",
            "max_epochs",
            "evaluate_seconds",
            "evaluate_updates",
            "checkpoint_seconds",
            "checkpoint_updates",
        )
    )
    window = max(1, round(updates / SPEED_WINDOWS))
    return {
        **spec.fixed,
        **never,
        "max_updates": ENDLESS,
        "probe_updates": 0,
        "speed_updates": window,
    }


class SpeedProbes:
    """Begins probes on free slots, and knows the fastest settings. For the controller's thread.

    At most one runs at a time. It begins if all probes take at most `MAX_SHARE` of the worker time
    and `bayes`, which proposes the settings, expects it to save more than it costs.

    Args:
        journal: of the sweep.
        assigner: makes assignments.
        guard: refuses a probe that needs far too much memory.
        kind: of the dispatcher; only one that runs attempts for real has probes.
    """

    def __init__(
        self,
        journal: Journal,
        assigner: Assigner,
        guard: MemoryGuard,
        kind: type[Dispatcher],
    ) -> None:
        self._journal = journal
        self._assigner = assigner
        self._guard = guard
        self._kind = kind
        self._names = speed_names(journal.spec.space)
        self._queue: SuggestionQueue | None = None
        self._limits: Mapping[str, Any] = {}  # of people, that the queue has
        self._next: tuple[Params, int] | None = None  # a probe, and the trials when it came
        self._cut_off = ""  # the failure of the running probe, if it was ended by force
        self._known = (-1, TrialIndex())  # the probes that have ended, by their number

    @cached_property
    def _spec(self) -> SweepSpec | None:
        """The sweep whose trials are the probes; None if this sweep has none."""
        spec = self._journal.spec
        if not (self._kind.estimates and spec.probes == "auto" and spec.timed and self._names):
            return None
        try:
            found = probing(spec, math.inf)
        except UsageError:  # the workload does not measure its speed
            return None
        return replace(found, budget=Budget(gain=1.0))  # with it the queue knows gains

    @property
    def running(self) -> Trial | None:
        """The probe that runs."""
        probes = self._journal.state.probes
        return probes[-1] if probes and not probes[-1].state.finished else None

    def prepare(self) -> None:
        """A probe that an earlier controller has left is over."""
        if self.running is not None:
            self._end(LOST, "its controller was lost")

    def begin(self, free: int) -> int:
        """Begin a probe if it is worth its time.

        Args:
            free: slots; at least 1.

        Returns:
            The slots that it takes, or all that it waits for.
        """
        if self._spec is None or self.running is not None or not self._affordable(1):
            return 0
        if self._next is None and (params := self._proposed()) is not None:
            self._next = params, len(self._journal.trials)
        if self._next is None:
            return 0
        (params, since), dispatcher = self._next, self._journal.dispatcher
        slots = self._assigner.slots(params)
        refused = self._guard.refusal(params, slots) if self._guard.ready(params, slots) else None
        if refused is None or not self._affordable(slots):
            return 0
        if refused or slots > dispatcher.most_slots:
            self._next = None
            self._journal.begin_probe(params, 0)
            self._end("out_of_memory" if refused else "crashed", refused or "too few slots")
            return 0
        if slots > free:  # like a trial, it lets only so many trials overtake it
            late = len(self._journal.trials) - since >= dispatcher.num_slots
            return free if late else 0
        self._next = None
        probe = self._journal.begin_probe(params, slots)
        assignment = self._assigner.probe(probe, self._spec.fixed, REPORTS)
        self._journal.then(lambda: dispatcher.submit(assignment))
        return slots

    def take_in(self, event: Event) -> None:
        """Take in an event of a probe."""
        probe = self.running
        if probe is None or event.trial != PROBE - probe.number or not isinstance(event, Outcome):
            return
        speed = event.metrics.get(SPEED)
        failure = self._cut_off or event.failure or (None if speed else "missing_metric")
        self._cut_off = ""
        peak = event.peak_memory_bytes
        slots = self._assigner.slots(probe.params)
        before = self._fastest(slots)
        self._end(failure, event.message, speed=None if failure else speed, peak_memory_bytes=peak)
        ended = self._journal.state.probes[-1]
        self._guard.observe(replace(ended, number=event.trial))
        if (found := self._fastest(slots)) and found != before:
            words = f"trials train with the fastest settings measured: {configuration(found)}"
            self._journal.note("probes", words)
        self._journal.then((self._assigner.files / "probes").remove)

    def watch(self, *, ending: bool) -> None:
        """End a probe with the sweep, or if probes would take too much of the worker time."""
        probe = self.running
        if probe is None or self._cut_off:
            return
        taken = self._journal.state.use.probe_seconds
        taken += (self._journal.now - (probe.started or 0.0)) * self._assigner.slots(probe.params)
        if ending or taken > self._allowed:
            self._cut_off = LOST if ending else "timeout"
            why = "the sweep ends" if ending else "probes may take no more worker time"
            self._journal.dispatcher.kill(PROBE - probe.number, 1, self._cut_off, why)

    def fastest(self, params: Params, allows: Callable[[Params], bool]) -> Params:
        """A proposed configuration with the fastest settings, or as it is.

        Args:
            allows: whether a configuration is within the limits of people.
        """
        space, trials = self._journal.spec.space, self._journal.trials
        found = self._fastest(self._assigner.slots(params))
        if not found or any(
            trial.failure == "out_of_memory" and settings(trial.params, self._names) == found
            for trial in trials
        ):
            return params
        changed = space.strip(space.complete({**params, **found}))
        tried = any(trial.params == changed for trial in trials)
        return changed if space.legal(changed) and allows(changed) and not tried else params

    def close(self) -> None:
        """End the background work."""
        if self._queue is not None:
            self._queue.close()

    def _fastest(self, slots: int) -> Params:
        """The fastest settings of a trial on so many slots; none before two were measured.

        If a goal asks for speed, the slots stay: their price is that fewer trials run at once.
        """
        spec = self._journal.spec
        found = measured(self._journal.state.probes, spec)
        if asks_for_speed(spec):
            found = [one for one in found if one.slots == slots]
        best = max(found, key=lambda one: one.speed, default=None)
        return best.params if best is not None and len(found) > 1 else {}

    def _end(self, failure: str | None, message: str, **facts: Any) -> None:
        number = len(self._journal.state.probes) - 1
        self._journal.end_probe(number, failure=failure, message=message, **facts)

    # ------------------------------------------------------------------ is it worth its time

    @property
    def _total(self) -> float:
        """Worker seconds of the whole sweep: the least that its budget says; else those so far."""
        state, budget = self._journal.state, self._journal.spec.budget
        limits = [] if budget.worker_time is None else [budget.worker_time]
        if budget.time is not None:
            limits.append(budget.time * max(self._journal.dispatcher.num_slots, 1))
        if budget.trials is not None:
            each = state.use.trial_seconds
            limits.append(budget.trials * each if math.isfinite(each) else 0.0)
        return min(limits, default=state.use.worker_time(self._journal.now))

    @property
    def _allowed(self) -> float:
        """Worker seconds that all probes may take."""
        return MAX_SHARE * self._total

    def _affordable(self, slots: int) -> bool:
        """Whether a probe on so many slots is allowed, and expected to save what it costs."""
        state, each = self._journal.state, self._seconds()
        if each is None or each >= state.use.seconds_left(self._journal.now):
            return False
        cost = each * slots
        ahead = cost * 2 if len(state.probes) == 0 else cost  # one alone compares nothing
        if state.use.probe_seconds + ahead > self._allowed:
            return False
        left = self._total - state.use.worker_time(self._journal.now)
        best = max((one.speed for one in measured(state.probes, self._journal.spec)), default=0.0)
        # With `gain` the rest takes best / (best + gain) of its time.
        needed = best * cost / (left - cost) if left > cost else math.inf
        return self._queue is None or self._queue.worth(needed)

    def _seconds(self) -> float | None:
        """About how long a probe takes; None if nothing is known yet.

        The first takes as long as trial 0 for as many reports.
        """
        state = self._journal.state
        known = [probe.seconds for probe in state.probes if not probe.failure]
        if known or not state.trials:
            return max(known, default=None)
        first, count = state.trials[0], 1 if state.spec.workload else REPORTS + 1
        if len(first.reports) >= count:
            return first.reports[count - 1].seconds
        return first.seconds or None if first.state.finished else None

    # ------------------------------------------------------------------ what is probed

    def _proposed(self) -> Params | None:
        """What is probed next: the settings of trial 0 first."""
        journal, spec = self._journal, self._spec
        assert spec is not None, "this sweep has probes"
        first = spec.space.complete(journal.trials[0].params)
        if not any(probe.failure != LOST for probe in journal.state.probes):
            return first
        if self._queue is None or self._limits != journal.state.limits:
            self.close()
            self._limits = dict(journal.state.limits)
            plugins = Plugins.of(spec)
            self._queue = plugins.make_queue(spec, self._kind, 1, lambda note: None)
            held = {name: v for name, v in first.items() if name not in self._names}
            limits = {name: _only(spec, name, value) for name, value in held.items()}
            try:
                everything = {**updated_limits([self._limits]), **limits}
                self._queue.restrict(Domain(spec.space, everything))
            except AutomlError:  # people have left no setting to try
                self._spec = None
                return None
        history = self._history()
        self._queue.prepare(history, 1, math.inf)
        try:
            found = self._queue.take(history, 1)
        except AutomlError as error:  # the sweep goes on without probes
            self._spec = None
            journal.note("probes", f"no further probes: {error}")
            return None
        return found[0].params if found else None

    def _history(self) -> TrialIndex:
        """The probes as trials whose goal is the speed that counts."""
        journal = self._journal
        count = len(journal.state.probes)
        if self._known[0] != count:
            speeds = {one.number: one.speed for one in measured(journal.state.probes, journal.spec)}
            ended = [
                replace(probe, metrics={**probe.metrics, SPEED: speeds.get(probe.number, 0.0)})
                for probe in journal.state.probes
                if probe.failure != LOST
            ]
            self._known = count, TrialIndex(ended)
        return self._known[1]


def _only(spec: SweepSpec, name: str, value: Any) -> Limit:
    """The limit that leaves one value."""
    if isinstance(spec.space.parameters[name], Choice):
        return Limit(choices=(value,))
    return Limit(low=value, high=value)
