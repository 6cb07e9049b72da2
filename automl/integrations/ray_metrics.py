"""Exports a sweep as Ray metrics. Ray sends them to Prometheus, with `ray_` before each name.

`docs/grafana.json` is a dashboard of them.
"""

from collections.abc import Callable
from typing import Any, Final

from automl.core import Snapshot, TrialState, text

SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TRIAL_SECONDS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
RATES: Final = ("tokens_per_second", "items_per_second", "images_per_second")


class RayMetrics:
    """Gauges and histograms of one sweep. Call it with each snapshot, in a process with Ray."""

    def __init__(self, sweep: str) -> None:
        from ray.util.metrics import Gauge, Histogram

        def metric(kind: Any, name: str, description: str, *tags: str, **options: Any) -> Any:
            made = kind(
                f"automl_{name}", description=description, tag_keys=("sweep", *tags), **options
            )
            return made.set_default_tags({"sweep": sweep})

        self.trials = metric(Gauge, "trials", "Trials by state.", "state")
        self.failed = metric(Gauge, "failed_trials", "Failed trials by kind of failure.", "kind")
        self.best = metric(Gauge, "best_goal", "Best value of a goal so far.", "goal")
        self.utilisation = metric(Gauge, "utilisation", "Share of the worker slots that are busy.")
        self.elapsed = metric(Gauge, "sweep_seconds", "Seconds of the sweep.")
        self.rate = metric(Gauge, "items_per_second", "Throughput of the trial that reported last.")
        self.memory = metric(Gauge, "peak_memory_bytes", "Largest peak memory of a trial.")
        self.suggestions = metric(
            Histogram,
            "suggestion_seconds",
            "Seconds that a suggestion took.",
            boundaries=list(SECONDS),
        )
        self.durations = metric(
            Histogram,
            "trial_seconds",
            "Seconds of the trials that ended.",
            boundaries=list(TRIAL_SECONDS),
        )
        self._ended: set[int] = set()
        self._suggested = 0

    def __call__(self, snapshot: Snapshot) -> None:
        """Set every metric from the snapshot."""
        for state in TrialState:
            self.trials.set(len(snapshot.in_state(state)), {"state": str(state)})
        for kind, count in text.failures(snapshot.trials).items():
            self.failed.set(count, {"kind": kind})
        self.utilisation.set(
            snapshot.busy_slots / snapshot.num_slots if snapshot.num_slots else 0.0
        )
        self.elapsed.set(snapshot.seconds)
        for index, goal in enumerate(snapshot.goals):
            found = (text.goal_value(trial, snapshot, index) for trial in snapshot.trials)
            if values := [value for value in found if value is not None]:
                self.best.set(min(values, key=goal.loss), {"goal": goal.metric})
        self._observe(snapshot)

    def _observe(self, snapshot: Snapshot) -> None:
        """Add the trials and suggestions that are new since the last snapshot."""
        ended = [
            trial
            for trial in snapshot.trials
            if trial.state.finished and trial.number not in self._ended
        ]
        for trial in ended:
            self._ended.add(trial.number)
            self.durations.observe(trial.seconds)
        peaks = [trial.peak_memory_bytes for trial in snapshot.trials if trial.peak_memory_bytes]
        if peaks:
            self.memory.set(max(peaks))
        newest = max(
            (t for t in snapshot.trials if t.reports), key=lambda t: t.started or 0.0, default=None
        )
        rates = [newest.metrics[name] for name in RATES if name in newest.metrics] if newest else []
        if rates:
            self.rate.set(rates[0])
        took = list(snapshot.suggestion_seconds)
        for seconds in took[min(self._suggested, len(took)) :]:
            self.suggestions.observe(seconds)
        self._suggested = len(took)


def with_ray_metrics(
    sweep: str, on_change: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None]:
    """`on_change`, which also exports the metrics of the sweep once Ray has started."""
    exports: list[RayMetrics] = []

    def watch(snapshot: Snapshot) -> None:
        if not exports and snapshot.num_slots:
            exports.append(RayMetrics(sweep))
        for export in exports:
            export(snapshot)
        if on_change is not None:
            on_change(snapshot)

    return watch
