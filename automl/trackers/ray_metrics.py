"""The metrics of a sweep that Ray sends to Prometheus, with `ray_` before each name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from automl.core import Snapshot, TrialState, text
from automl.core.state import INFEASIBLE

# By name: what it is, and the label beside `sweep`.
METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "trials": ("Trials by state.", "state"),
    "failed_trials": ("Failed trials by kind of failure.", "kind"),
    "best_goal": ("Best value of a goal so far.", "goal"),
    "slots": ("Worker slots.", ""),
    "utilisation": ("Share of the slots that are busy.", ""),
    "sweep_seconds": ("Seconds of the sweep.", ""),
    "peak_memory_bytes": ("Largest peak memory of a trial.", ""),
}


class RayMetrics:
    """The metrics of one sweep, in a process that is connected to Ray; call it with each snapshot.

    Args:
        sweep: its name, which is a label of every metric.
    """

    def __init__(self, sweep: str) -> None:
        from ray.util.metrics import Gauge

        self._made: dict[str, Any] = {}
        for name, (description, label) in METRICS.items():
            labels = ("sweep", label) if label else ("sweep",)
            self._made[name] = Gauge(f"automl_{name}", description, tag_keys=labels)
            self._made[name].set_default_tags({"sweep": sweep})

    def __call__(self, snapshot: Snapshot) -> None:
        """Update every metric."""
        counts = snapshot.counts()
        for state in (*TrialState, INFEASIBLE):
            self._set("trials", counts[state], state=str(state))
        for kind, count in text.failures(snapshot.trials).items():
            self._set("failed_trials", count, kind=kind)
        for index, goal in enumerate(snapshot.goals):
            values = (snapshot.value(trial, index) for trial in snapshot.trials)
            known = [value for value in values if value is not None]
            if known:
                self._set("best_goal", min(known, key=goal.loss), goal=goal.metric)
        slots = snapshot.num_slots
        self._set("slots", slots)
        self._set("utilisation", snapshot.busy_slots / slots if slots else 0.0)
        self._set("sweep_seconds", snapshot.seconds)
        peaks = [trial.peak_memory_bytes or 0 for trial in snapshot.trials]
        self._set("peak_memory_bytes", max(peaks, default=0))

    def _set(self, name: str, value: float, **labels: str) -> None:
        self._made[name].set(value, labels)


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
