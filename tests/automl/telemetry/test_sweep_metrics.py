"""Metrics of a sweep as Prometheus reads them, from the controller and from Ray, and the board."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import prometheus_server
import pytest
import ray
from sweep_snapshots import DONE, FIRST, LATER, snapshot

from automl.core import Ended, Trial, TrialState
from automl.dispatch.ray.session import environment
from automl.errors import UsageError
from automl.telemetry.metrics import SweepMetrics
from automl.telemetry.prometheus import metrics_server, read_address
from automl.telemetry.ray_meter import RayMeter
from workers.protocol import Ending, Outcome

BOARD = json.loads((Path(__file__).parents[3] / "docs" / "grafana.json").read_text())
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def fetched(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def ray_page() -> Iterator[str]:
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
            metrics = SweepMetrics(RayMeter("toy"))
            metrics(FIRST)
            metrics(LATER)
            deadline, text = time.monotonic() + 60, ""
            while time.monotonic() < deadline and "automl_trial_seconds" not in text:
                time.sleep(0.3)
                try:
                    text = fetched(ray.nodes()[0]["MetricsExportPort"])
                except OSError:
                    continue
            yield text
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def own_page() -> str:
    """What the controller itself tells Prometheus."""
    with metrics_server("toy", "0") as export:
        export(FIRST)
        export(LATER)
        return fetched(export.port)  # type: ignore[attr-defined]


@pytest.fixture(params=["ray_page", "own_page"])
def page(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def value(page: str, name: str, **labels: str) -> float:
    for line in page.splitlines():
        if re.match(rf"(ray_)?automl_{name}{{", line) and all(
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
    assert value(page, "slots") == 2
    assert value(page, "peak_memory_bytes") == 12345
    assert value(page, "trial_seconds_count") == 2
    assert value(page, "trial_seconds_bucket", le="3.0") == 1
    assert value(page, "suggestion_queue") == 2
    assert value(page, "suggestion_seconds_count") == 5
    assert value(page, "commits_total") == 4
    assert value(page, "commit_seconds_total") == 1.0
    assert value(page, "retries_total") == 1


def test_the_board_draws_metrics_that_exist(page: str) -> None:
    drawn = {name for expression in EXPRESSIONS for name in re.findall(r"automl_\w+", expression)}
    told = set(re.findall(r"^(?:ray_)?(automl_\w+)", page, re.MULTILINE))
    assert drawn - told == set()
    assert len(drawn) >= 10


@pytest.mark.skipif(
    prometheus_server.missing() is not None, reason=str(prometheus_server.missing())
)
def test_a_real_prometheus_answers_every_expression_of_the_board() -> None:
    with (
        metrics_server("toy", "0") as export,
        prometheus_server.prometheus(f"127.0.0.1:{export.port}") as query,  # type: ignore[attr-defined]
    ):
        export(FIRST)
        prometheus_server.wait_for(query, 'automl_trials{sweep="toy"}')
        export(LATER)
        prometheus_server.wait_for(query, "automl_commits_total == 4")
        prometheus_server.wait_for(query, "rate(automl_retries_total[1m]) > 0")
        for expression in EXPRESSIONS:
            assert query(expression.replace("$sweep", ".*")), expression


def test_what_had_ended_before_is_not_counted_again() -> None:
    """A sweep that goes on in a new process: rates must not see its past as new."""
    with metrics_server("toy", "0") as export:
        export(snapshot(DONE))
        done = Trial(1, {}, TrialState.COMPLETED, attempts=1, seconds=2.0)
        end = Ended(Outcome(1, 1, Ending.COMPLETED), TrialState.COMPLETED)
        export(snapshot(DONE, done, events=[end]))
        text = fetched(export.port)  # type: ignore[attr-defined]
    assert value(text, "trial_seconds_count") == 1
    assert value(text, "trial_seconds_sum") == 2.0
    assert value(text, "trials", state="completed") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("9100", ("127.0.0.1", 9100)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:1", ("::1", 1))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert read_address(text) == expected


@pytest.mark.parametrize("text", ["", "x", "70000", "a:b", "1:2:3", "-1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--metrics is \[HOST:\]PORT"):
        read_address(text)


def test_a_port_in_use_is_one_clear_error() -> None:
    with metrics_server("a", "0") as export:
        port = export.port  # type: ignore[attr-defined]
        with (
            pytest.raises(UsageError, match=f"--metrics {port}: metrics cannot be served there"),
            metrics_server("b", str(port)),
        ):
            pass


def test_a_sweep_serves_its_metrics_while_it_runs(tmp_path: Path) -> None:
    """The objective itself asks for them."""
    port = _free_port()
    (tmp_path / "toy.yaml").write_text(
        "name: toy\nspace:\n  x: {low: 0.0, high: 1.0, default: 0.5}\ngoals: minimize loss\n"
        "budget: {trials: 3}\nsuggester: random\n"
    )
    (tmp_path / "train.py").write_text(
        "import urllib.request\n"
        "def objective(trial):\n"
        "    page = urllib.request.urlopen('http://127.0.0.1:PORT/metrics').read().decode()\n"
        "    lines = [l for l in page.splitlines() if l.startswith('automl_trials{')]\n"
        "    (running,) = [l for l in lines if 'running' in l and 'sweep=\"toy\"' in l]\n"
        "    return {'loss': float(running.split()[-1])}\n".replace("PORT", port)
    )
    options = ["--objective", "train.py", "--dispatcher", "local", "--workers", "1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "automl",
            "sweep",
            "toy.yaml",
            *options,
            "--metrics",
            port,
            "--json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_completed"] == 3


def _free_port() -> str:
    with metrics_server("x", "0") as export:
        return str(export.port)  # type: ignore[attr-defined]
