"""The metrics of a sweep, for whatever system collects them."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from automl.core import Activity, Snapshot, TrialState, text
from automl.core.snapshot import INFEASIBLE, Standings
from workers.protocol import Report

SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TRIAL_SECONDS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
RATES: Final = ("tokens_per_second", "items_per_second", "images_per_second")
# The kinds of metrics, as Ray names them, and the method that updates one.
UPDATES: Final[Mapping[str, str]] = {"Gauge": "set", "Counter": "inc", "Histogram": "observe"}

# Takes a value, and the metric's labels by name.
Update = Callable[..., None]


class Meter(Protocol):
    """Makes metrics in a system that collects them."""

    def make(
        self, kind: str, name: str, description: str, *labels: str, bounds: tuple[float, ...] = ()
    ) -> Update:
        """A metric.

        Args:
            kind: one of `UPDATES`; the system adds `_total` to the name of a counter.
            labels: names beside `sweep`.
            bounds: of the buckets of a histogram.
        """


class SweepMetrics:
    """The metrics of one sweep; call it with each snapshot.

    Counters and histograms count the events of this process; gauges show the whole sweep.

    Args:
        meter: makes the metrics.
    """

    def __init__(self, meter: Meter) -> None:
        make = meter.make
        self._trials = make("Gauge", "trials", "Trials by state.", "state")
        self._failed = make("Gauge", "failed_trials", "Failed trials by kind of failure.", "kind")
        self._best = make("Gauge", "best_goal", "Best value of a goal so far.", "goal")
        self._slots = make("Gauge", "slots", "Worker slots.")
        self._utilisation = make("Gauge", "utilisation", "Share of the slots that are busy.")
        self._elapsed = make("Gauge", "sweep_seconds", "Seconds of the sweep.")
        self._rate = make(
            "Gauge", "items_per_second", "Throughput of the trial that reported last."
        )
        self._memory = make("Gauge", "peak_memory_bytes", "Largest peak memory of a trial.")
        self._queue = make("Gauge", "suggestion_queue", "Suggestions that are ready for a slot.")
        self._suggestions = make(
            "Histogram", "suggestion_seconds", "Seconds that a suggestion took.", bounds=SECONDS
        )
        self._durations = make(
            "Histogram", "trial_seconds", "Seconds of trials that ended.", bounds=TRIAL_SECONDS
        )
        self._commits = make("Counter", "commits", "Commits to the ledger.")
        self._commit_seconds = make("Counter", "commit_seconds", "Seconds of these commits.")
        self._retries = make("Counter", "retries", "Attempts of trials after the first.")
        self._standings = Standings()
        self._activity = Activity()

    def __call__(self, snapshot: Snapshot) -> None:
        """Update every metric."""
        self._standings.follow(snapshot)
        counts = self._standings.counts()
        for state in (*TrialState, INFEASIBLE):
            self._trials(counts[state], state=str(state))
        for kind, count in text.failures(snapshot.trials).items():
            self._failed(count, kind=kind)
        self._slots(snapshot.num_slots)
        self._utilisation(snapshot.busy_slots / snapshot.num_slots if snapshot.num_slots else 0.0)
        self._elapsed(snapshot.seconds)
        self._queue(snapshot.activity.num_ready)
        for index, goal in enumerate(snapshot.goals):
            known = [v for values in self._standings.values if (v := values[index]) is not None]
            if known:
                self._best(min(known, key=goal.loss), goal=goal.metric)
        if peaks := [t.peak_memory_bytes for t in snapshot.trials if t.peak_memory_bytes]:
            self._memory(max(peaks))
        for event in snapshot.events:
            if isinstance(event, Report):
                rates = [event.metrics[name] for name in RATES if name in event.metrics]
                for rate in rates[:1]:
                    self._rate(rate)
        self._count(snapshot)

    def _count(self, snapshot: Snapshot) -> None:
        """Add what is new."""
        now, before, self._activity = snapshot.activity, self._activity, snapshot.activity
        self._commits(now.num_commits - before.num_commits)
        self._commit_seconds(now.commit_seconds - before.commit_seconds)
        num_new = now.num_suggestions - before.num_suggestions
        for seconds in snapshot.suggestion_seconds[-num_new:] if num_new else ():
            self._suggestions(seconds)
        retries = 0
        for trial, state in snapshot.transitions:
            retries += state is TrialState.RUNNING and trial.attempts > 1
            if state.finished:
                self._durations(trial.seconds)
        self._retries(retries)
