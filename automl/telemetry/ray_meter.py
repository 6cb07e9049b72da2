"""Metrics that Ray collects and sends to Prometheus, with `ray_` before each name."""

from collections.abc import Callable
from typing import Any

from automl.core import Snapshot

from .metrics import SweepMetrics, Update


class RayMeter:
    """Makes metrics of Ray, in a process that is connected to it.

    Args:
        sweep: its name, which is a label of every metric.
    """

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep

    def gauge(self, name: str, description: str, *labels: str) -> Update:
        """A gauge of Ray."""
        from ray.util.metrics import Gauge

        made = self._labelled(Gauge(f"automl_{name}", description, ("sweep", *labels)))
        return lambda value, **given: made.set(value, given)

    def counter(self, name: str, description: str, *labels: str) -> Update:
        """A counter of Ray, which takes no zero."""
        from ray.util.metrics import Counter

        made = self._labelled(Counter(f"automl_{name}", description, ("sweep", *labels)))
        return lambda value, **given: made.inc(value, given) if value > 0 else None

    def histogram(self, name: str, description: str, boundaries: tuple[float, ...]) -> Update:
        """A histogram of Ray."""
        from ray.util.metrics import Histogram

        made = self._labelled(
            Histogram(f"automl_{name}", description, list(boundaries), ("sweep",))
        )
        return lambda value, **given: made.observe(value, given)

    def _labelled(self, metric: Any) -> Any:
        return metric.set_default_tags({"sweep": self._sweep})


def with_ray_metrics(
    sweep: str, on_change: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None]:
    """`on_change`, which also exports the metrics of the sweep once Ray has started."""
    exports: list[SweepMetrics] = []

    def watch(snapshot: Snapshot) -> None:
        if not exports and snapshot.num_slots:
            exports.append(SweepMetrics(RayMeter(sweep)))
        for export in exports:
            export(snapshot)
        if on_change is not None:
            on_change(snapshot)

    return watch
