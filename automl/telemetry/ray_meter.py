"""Metrics that Ray collects and sends to Prometheus, with `ray_` before each name."""

from collections.abc import Callable
from typing import Any

from automl.core import Snapshot

from .metrics import UPDATES, SweepMetrics, Update


class RayMeter:
    """Makes metrics of Ray, in a process that is connected to it.

    Args:
        sweep: its name, which is a label of every metric.
    """

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep

    def make(
        self, kind: str, name: str, description: str, *labels: str, bounds: tuple[float, ...] = ()
    ) -> Update:
        """A metric of Ray. Its counters take no zero."""
        from ray.util import metrics

        options: dict[str, Any] = {"boundaries": list(bounds)} if bounds else {}
        made = getattr(metrics, kind)(
            f"automl_{name}", description, tag_keys=("sweep", *labels), **options
        )
        made.set_default_tags({"sweep": self._sweep})
        update = getattr(made, UPDATES[kind])
        takes_zero = kind != "Counter"
        return lambda value, **given: update(value, given) if value or takes_zero else None


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
