"""The metrics of a sweep that Ray sends to Prometheus, with `ray_` before each name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from automl.core import Snapshot, TrialState, text
from automl.core.snapshot import INFEASIBLE, Standings
from workers.protocol import Report

RATES: Final = ("tokens_per_second", "items_per_second", "images_per_second")
# By name: kind of metric, description, and label beside `sweep`. Ray adds `_total` to a counter.
METRICS: Final[Mapping[str, tuple[str, str, str]]] = {
    "trials": ("Gauge", "Trials by state.", "state"),
    "failed_trials": ("Gauge", "Failed trials by kind of failure.", "kind"),
    "best_goal": ("Gauge", "Best value of a goal so far.", "goal"),
    "slots": ("Gauge", "Worker slots.", ""),
    "utilisation": ("Gauge", "Share of the slots that are busy.", ""),
    "sweep_seconds": ("Gauge", "Seconds of the sweep.", ""),
    "items_per_second": ("Gauge", "Throughput of the trial that reported last.", ""),
    "peak_memory_bytes": ("Gauge", "Largest peak memory of a trial.", ""),
    "trial_seconds": ("Histogram", "Seconds of trials that ended.", ""),
    "retries": ("Counter", "Attempts of trials after the first.", ""),
}
BOUNDS: Final = {"trial_seconds": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)}


class RayMetrics:
    """The metrics of one sweep, in a process that is connected to Ray; call it with each snapshot.

    Counters and histograms count the events of this process; gauges show the whole sweep.

    Args:
        sweep: its name, which is a label of every metric.
    """

    def __init__(self, sweep: str) -> None:
        from ray.util import metrics

        self._made: dict[str, Any] = {}
        for name, (kind, description, label) in METRICS.items():
            options = {"boundaries": list(BOUNDS[name])} if name in BOUNDS else {}
            labels = ("sweep", label) if label else ("sweep",)
            made = getattr(metrics, kind)(f"automl_{name}", description, tag_keys=labels, **options)
            made.set_default_tags({"sweep": sweep})
            self._made[name] = made
        self._standings = Standings()

    def __call__(self, snapshot: Snapshot) -> None:
        """Update every metric."""
        self._standings.follow(snapshot)
        counts = self._standings.counts()
        for state in (*TrialState, INFEASIBLE):
            self._set("trials", counts[state], state=str(state))
        for kind, count in text.failures(snapshot.trials).items():
            self._set("failed_trials", count, kind=kind)
        for index, goal in enumerate(snapshot.goals):
            known = [v for values in self._standings.values if (v := values[index]) is not None]
            if known:
                self._set("best_goal", min(known, key=goal.loss), goal=goal.metric)
        slots = snapshot.num_slots
        self._set("slots", slots)
        self._set("utilisation", snapshot.busy_slots / slots if slots else 0.0)
        self._set("sweep_seconds", snapshot.seconds)
        peaks = [trial.peak_memory_bytes or 0 for trial in snapshot.trials]
        self._set("peak_memory_bytes", max(peaks, default=0))
        self._count(snapshot)

    def _count(self, snapshot: Snapshot) -> None:
        """Add what is new."""
        for event in snapshot.events:
            rates = event.metrics if isinstance(event, Report) else {}
            for name in RATES:
                if name in rates:
                    self._set("items_per_second", rates[name])
        for trial, state in snapshot.transitions:
            if state is TrialState.RUNNING and trial.attempts > 1:
                self._add("retries", 1)
            if state.finished:
                self._made["trial_seconds"].observe(trial.seconds)

    def _set(self, name: str, value: float, **labels: str) -> None:
        self._made[name].set(value, labels)

    def _add(self, name: str, value: float) -> None:
        if value:  # Ray's counters take no zero
            self._made[name].inc(value)


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
