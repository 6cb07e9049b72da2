"""OpenTelemetry gets a trace of each trial, here in memory and at a real OTLP receiver."""

from __future__ import annotations

import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.core import Goal, ReportLog, ReportPoint, Snapshot, Trial, TrialState
from automl.trackers.base import TrackedSweep
from automl.trackers.opentelemetry import OpenTelemetryTracker, trace_ids

pytest.importorskip("opentelemetry.sdk", reason="install automl[opentelemetry]")

SWEEP = TrackedSweep("toy", 1000.0)


def objective(trial: Any) -> dict[str, float]:
    if trial.number == 1:
        raise automl.TrialFailure("out_of_memory")
    for step in (10, 20, 30):
        trial.report(step=step, loss=trial.params["lr"] / step)
    return {"loss": 0.5}


def snapshot(trial: Trial, state: str = "running", seconds: float = 10.0) -> Snapshot:
    return Snapshot("toy", state, (trial,), (Goal("loss"),), seconds=seconds)


def spans_by_name(exporter: Any) -> dict[str, Any]:
    return {span.name: span for span in exporter.get_finished_spans()}


@pytest.fixture
def exporter() -> Any:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


def test_a_sweep_is_a_trace_for_each_trial(exporter: Any, tmp_path: Path) -> None:
    automl.sweep(
        objective,
        {"lr": (0.1, 1.0)},
        "minimize loss",
        trials=3,
        suggester="random",
        dispatcher="inline",
        progress=False,
        store=tmp_path,
        name="traced",
        trackers=OpenTelemetryTracker(exporter),
    )
    traces = defaultdict(dict)
    for span in exporter.get_finished_spans():
        traces[span.context.trace_id][span.name] = span
    assert len(traces) == 3
    for trace in traces.values():
        (number,) = {span.attributes["automl.trial"] for span in trace.values()}
        trial, attempt = trace[f"trial {number}"], trace["attempt 1"]
        assert attempt.parent.span_id == trial.context.span_id
        assert trial.start_time <= attempt.start_time <= attempt.end_time <= trial.end_time
        assert 0.1 <= trial.attributes["automl.param.lr"] <= 1.0
        if number == 1:
            assert trial.status.status_code.name == "ERROR"
            assert trial.attributes["automl.failure"] == "out_of_memory"
        else:
            assert [event.attributes["step"] for event in attempt.events] == [10, 20, 30]
            assert trial.attributes["automl.metric.loss"] == 0.5
            assert trial.attributes["automl.state"] == "completed"


def test_each_attempt_is_a_span_with_its_own_reports(exporter: Any) -> None:
    tracker = OpenTelemetryTracker(exporter)
    tracker.open(SWEEP)
    first = [ReportPoint(1, {"loss": 1.0}, 1.0, 1, 0), ReportPoint(2, {"loss": 0.9}, 2.0, 1, 1)]
    trial = Trial(0, {}, TrialState.RUNNING, attempts=1, started=1.0, reports=ReportLog(first))
    tracker.write(trial, snapshot(trial))
    waiting = Trial(0, {}, TrialState.WAITING, attempts=1, started=1.0, message="a node was lost")
    tracker.write(waiting, snapshot(waiting))
    later = [first[0], ReportPoint(2, {"loss": 0.8}, 3.0, 2, 0)]  # from the checkpoint of step 1
    trial = Trial(0, {}, TrialState.RUNNING, attempts=2, started=1.0, reports=ReportLog(later))
    tracker.write(trial, snapshot(trial))
    done = Trial(
        0, {}, TrialState.COMPLETED, attempts=2, started=1.0, ended=9.0, reports=ReportLog(later)
    )
    tracker.write(done, snapshot(done))
    tracker.write(done, snapshot(done))
    tracker.close(snapshot(done, "finished"))
    found = spans_by_name(exporter)
    assert len(exporter.get_finished_spans()) == 3
    assert [e.attributes["metric.loss"] for e in found["attempt 1"].events] == [1.0, 0.9]
    assert [e.attributes["metric.loss"] for e in found["attempt 2"].events] == [0.8]
    assert found["attempt 1"].attributes["automl.message"] == "a node was lost"
    assert found["trial 0"].end_time - found["trial 0"].start_time == 8 * 10**9


def test_a_sweep_that_goes_on_elsewhere_adds_to_the_same_trace() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = []
    for state in (TrialState.RUNNING, TrialState.COMPLETED):
        exporter = InMemorySpanExporter()
        tracker = OpenTelemetryTracker(exporter)
        tracker.open(SWEEP)
        trial = Trial(0, {}, state, attempts=1, started=1.0, ended=2.0)
        tracker.write(trial, snapshot(trial))
        tracker.close(snapshot(trial, "interrupted"))
        spans += exporter.get_finished_spans()
    assert {span.context.trace_id for span in spans} == {trace_ids(SWEEP.id, 0)[0]}
    assert sorted(span.name for span in spans) == ["attempt 1"] * 2 + ["trial 0"] * 2


def test_a_sweep_of_the_past_keeps_its_times(exporter: Any) -> None:
    """`automl publish`: the store knows when the sweep was created."""
    tracker = OpenTelemetryTracker(exporter)
    tracker.open(SWEEP)
    trial = Trial(0, {}, TrialState.COMPLETED, attempts=1, started=1.0, ended=3.0)
    tracker.write(trial, snapshot(trial, "finished"))
    tracker.close(snapshot(trial, "finished"))
    span = spans_by_name(exporter)["trial 0"]
    assert (span.start_time, span.end_time) == (1001 * 10**9, 1003 * 10**9)


def test_spans_arrive_at_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    try:
        tracker = OpenTelemetryTracker()
        tracker.open(SWEEP)
        trial = Trial(0, {"x": 0.5}, TrialState.COMPLETED, attempts=1, started=1.0, ended=2.0)
        tracker.write(trial, snapshot(trial))
        tracker.close(snapshot(trial, "finished"))
    finally:
        server.shutdown()
        server.server_close()
    ((path, request),) = received
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    spans = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert sorted(spans) == ["attempt 1", "trial 0"]
    names = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert names["service.name"] == "automl"
