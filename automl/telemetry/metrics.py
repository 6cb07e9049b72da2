"""The metrics of a sweep, for whatever system collects them; docs/grafana.json draws them."""

from collections.abc import Callable
from typing import Final, Protocol

from automl.core import Snapshot, TrialState, text

SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TRIAL_SECONDS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
RATES: Final = ("tokens_per_second", "items_per_second", "images_per_second")


# Sets a gauge, adds to a counter, or adds an observation to a histogram: a value, and its labels.
Update = Callable[..., None]


class Meter(Protocol):
    """Makes metrics in a system that collects them; `labels` are names beside `sweep`."""

    def gauge(self, name: str, description: str, *labels: str) -> Update:
        """A value that rises and falls."""

    def counter(self, name: str, description: str, *labels: str) -> Update:
        """A sum; the system adds `_total` to its name."""

    def histogram(self, name: str, description: str, boundaries: tuple[float, ...]) -> Update:
        """Observations in buckets up to each boundary."""


class SweepMetrics:
    """The metrics of one sweep; call it with each snapshot.

    What was there before this process, such as trials that have ended, counts in gauges only.

    Args:
        meter: makes the metrics.
    """

    def __init__(self, meter: Meter) -> None:
        self._trials = meter.gauge("trials", "Trials by state.", "state")
        self._failed = meter.gauge("failed_trials", "Failed trials by kind of failure.", "kind")
        self._best = meter.gauge("best_goal", "Best value of a goal so far.", "goal")
        self._slots = meter.gauge("slots", "Worker slots.")
        self._utilisation = meter.gauge("utilisation", "Share of the worker slots that are busy.")
        self._elapsed = meter.gauge("sweep_seconds", "Seconds of the sweep.")
        self._rate = meter.gauge("items_per_second", "Throughput of the trial that reported last.")
        self._memory = meter.gauge("peak_memory_bytes", "Largest peak memory of a trial.")
        self._queue = meter.gauge("suggestion_queue", "Suggestions that are ready for a slot.")
        self._suggestions = meter.histogram(
            "suggestion_seconds", "Seconds that a suggestion took.", SECONDS
        )
        self._durations = meter.histogram(
            "trial_seconds", "Seconds of the trials that ended.", TRIAL_SECONDS
        )
        self._commits = meter.counter("commits", "Commits to the ledger.")
        self._commit_seconds = meter.counter("commit_seconds", "Seconds of these commits.")
        self._retries = meter.counter("retries", "Attempts of trials after the first.")
        self._last = Snapshot("", "running", (), ())

    def __call__(self, snapshot: Snapshot) -> None:
        """Update every metric."""
        for state in TrialState:
            self._trials(len(snapshot.in_state(state)), state=str(state))
        for kind, count in text.failures(snapshot.trials).items():
            self._failed(count, kind=kind)
        self._slots(snapshot.num_slots)
        self._utilisation(snapshot.busy_slots / snapshot.num_slots if snapshot.num_slots else 0.0)
        self._elapsed(snapshot.seconds)
        self._queue(snapshot.activity.num_ready)
        for index, goal in enumerate(snapshot.goals):
            found = (text.goal_value(trial, snapshot, index) for trial in snapshot.trials)
            if values := [value for value in found if value is not None]:
                self._best(min(values, key=goal.loss), goal=goal.metric)
        peaks = [trial.peak_memory_bytes for trial in snapshot.trials if trial.peak_memory_bytes]
        if peaks:
            self._memory(max(peaks))
        self._show_rate(snapshot)
        self._count(snapshot)

    def _show_rate(self, snapshot: Snapshot) -> None:
        newest = max(
            (t for t in snapshot.trials if t.reports), key=lambda t: t.started or 0.0, default=None
        )
        rates = [newest.metrics[name] for name in RATES if name in newest.metrics] if newest else []
        if rates:
            self._rate(rates[0])

    def _count(self, snapshot: Snapshot) -> None:
        """Add what is new since the last snapshot."""
        first, last = not self._last.sweep, self._last
        now, before = snapshot.activity, last.activity
        self._commits(max(0, now.num_commits - before.num_commits))
        self._commit_seconds(max(0.0, now.commit_seconds - before.commit_seconds))
        new = min(now.num_suggestions - before.num_suggestions, len(snapshot.suggestion_seconds))
        for seconds in snapshot.suggestion_seconds[-new:] if new > 0 else ():
            self._suggestions(seconds)
        retries = 0
        for trial in () if first else snapshot.trials:
            known = last.trials[trial.number] if trial.number < len(last.trials) else None
            if trial is not known:
                retries += max(0, trial.attempts - max(1, known.attempts if known else 0))
                if trial.state.finished and not (known and known.state.finished):
                    self._durations(trial.seconds)
        self._retries(retries)
        self._last = snapshot
