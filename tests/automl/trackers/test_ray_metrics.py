"""Metrics of a sweep as Ray tells them to whoever collects them."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest
import ray
from sweep_snapshots import FIRST, LATER

from automl.dispatch.ray.session import environment
from automl.trackers.ray_metrics import RayMetrics


def fetched(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """What the metrics agent of a node tells, once it tells of a sweep."""
    with environment():
        ray.init(
            address="local",
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _system_config={"metrics_report_interval_ms": 500},
        )
        try:
            metrics = RayMetrics("toy")
            metrics(FIRST)
            metrics(LATER)
            deadline, text = time.monotonic() + 60, ""
            while time.monotonic() < deadline and "automl_peak_memory_bytes" not in text:
                time.sleep(0.3)
                try:
                    text = fetched(ray.nodes()[0]["MetricsExportPort"])
                except OSError:
                    continue
            yield text
        finally:
            ray.shutdown()


def value(page: str, name: str, **labels: str) -> float:
    for line in page.splitlines():
        if re.match(rf"ray_automl_{name}{{", line) and all(
            f'{k}="{v}"' in line for k, v in labels.items()
        ):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no {name} of {labels}")


def test_ray_tells_what_the_sweep_says(page: str) -> None:
    assert value(page, "trials", sweep="toy", state="running") == 1
    assert value(page, "trials", sweep="toy", state="failed") == 1
    assert value(page, "failed_trials", kind="out_of_memory") == 1
    assert value(page, "best_goal", goal="loss") == 2.5
    assert value(page, "utilisation") == 0.5
    assert value(page, "slots") == 2
    assert value(page, "peak_memory_bytes") == 12345
    assert value(page, "suggestion_queue") == 2
