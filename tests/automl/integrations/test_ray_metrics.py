"""Metrics of a sweep as Prometheus reads them from Ray, and the Grafana dashboard of them."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from automl.core.goals import Goal
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState
from automl.dispatch.ray.session import environment
from automl.integrations.ray_metrics import RayMetrics

GRAFANA = Path(__file__).parents[3] / "docs" / "grafana.json"


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """What the metrics agent of a node tells Prometheus, once it tells of a sweep."""
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
            trials = [
                Trial(
                    0,
                    {},
                    TrialState.COMPLETED,
                    {"loss": 2.5, "items_per_second": 70.0},
                    seconds=4.0,
                ),
                Trial(
                    1,
                    {},
                    TrialState.FAILED,
                    failure="out_of_memory",
                    seconds=1.0,
                    peak_memory_bytes=12345,
                ),
                Trial(2, {}, TrialState.RUNNING),
            ]
            snapshot = Snapshot(
                "toy", "running", trials, (Goal("loss"),), num_slots=2, busy_slots=1
            )
            metrics(snapshot)
            yield scraped(ray.nodes()[0]["MetricsExportPort"], "ray_automl_trial_seconds")
        finally:
            ray.shutdown()


def scraped(port: int, wanted: str) -> str:
    deadline, text = time.monotonic() + 60, ""
    while time.monotonic() < deadline and wanted not in text:
        time.sleep(0.3)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue
    return text


def value(page: str, name: str, **labels: str) -> float:
    for line in page.splitlines():
        if line.startswith(f"ray_automl_{name}{{") and all(
            f'{k}="{v}"' in line for k, v in labels.items()
        ):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no {name} of {labels}")


def test_prometheus_gets_what_the_sweep_says(page: str) -> None:
    assert value(page, "trials", sweep="toy", state="running") == 1
    assert value(page, "trials", sweep="toy", state="failed") == 1
    assert value(page, "failed_trials", kind="out_of_memory") == 1
    assert value(page, "best_goal", goal="loss") == 2.5
    assert value(page, "utilisation") == 0.5
    assert value(page, "peak_memory_bytes") == 12345
    assert value(page, "trial_seconds_count") == 2
    assert value(page, "trial_seconds_bucket", le="3.0") == 1


def test_the_grafana_dashboard_draws_metrics_that_exist(page: str) -> None:
    dashboard = json.loads(GRAFANA.read_text())
    drawn = {
        name for panel in dashboard["panels"] for t in panel["targets"] for name in names(t["expr"])
    }
    told = set(re.findall(r"^ray_automl_\w+", page, re.MULTILINE))
    silent = {
        "ray_automl_items_per_second",
        "ray_automl_suggestion_seconds_bucket",
    }  # nothing has been observed yet
    assert drawn - told <= silent
    assert len(drawn) >= 8


def names(expression: str) -> list[str]:
    return re.findall(r"ray_automl_\w+", expression)
