"""OpenTelemetry: a trace of each trial's life, with a span for the trial and one for each attempt.

The ids of traces are computed from the sweep and the trial, so a sweep that goes on in another
process adds to the same traces, and a program can find the trace of a trial.
"""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from automl.core import Snapshot, Trial, TrialState

from .base import TrackedSweep, Tracker

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

FLUSH_SECONDS: Final = 10.0
_NANO: Final = 1_000_000_000


class OpenTelemetryTracker(Tracker):
    """Sends a span of each trial and of each attempt, with its reports as events.

    They go to the collector that the environment names, such as OTEL_EXPORTER_OTLP_ENDPOINT
    (http://localhost:4318 by default). OTEL_SERVICE_NAME is "automl" by default.

    Args:
        exporter: of spans; None for OTLP over HTTP.
    """

    name = "opentelemetry"
    module = "opentelemetry.sdk"

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        self._exporter = exporter
        self._open: dict[int, _OpenTrial] = {}
        self._finished: set[int] = set()
        self._begun: int | None = None  # the sweep's second 0, in nanoseconds since 1970
        self.place = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")

    def open(self, sweep: TrackedSweep) -> None:
        """Make the tracer; nothing is sent yet."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = self._exporter
        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        service = os.environ.get("OTEL_SERVICE_NAME", "automl")
        self._sweep = sweep
        self._provider = TracerProvider(resource=Resource.create({"service.name": service}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("automl")

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Begin and end the spans of a trial as it has changed."""
        if trial.number in self._finished:
            return
        self._look_at_the_clock(snapshot)
        if trial.number not in self._open:
            self._open[trial.number] = _OpenTrial(self._begin(trial))
        found = self._open[trial.number]
        if trial.attempts > found.num_attempts:
            self._end_attempt(found, trial)
            self._begin_attempt(found, trial)
        _add_reports(found, trial)
        if trial.state is not TrialState.RUNNING:
            self._end_attempt(found, trial)
        if trial.state.finished:
            self._end(trial)

    def close(self, snapshot: Snapshot) -> None:
        """End what is open and send what is left.

        Raises:
            TimeoutError: the collector has not taken it in time.
        """
        for number in list(self._open):
            trial = snapshot.trials[number]
            self._end_attempt(self._open[number], trial)
            self._end(trial)
        if not self._provider.force_flush(int(FLUSH_SECONDS * 1000)):
            raise TimeoutError(f"{self.place} has not taken all spans within {FLUSH_SECONDS:g} s")
        self._provider.shutdown()

    def _look_at_the_clock(self, snapshot: Snapshot) -> None:
        """Find when the sweep's second 0 was; while it runs, its seconds pass as ours do."""
        if snapshot.state == "running":
            begun = time.time_ns() - int(snapshot.seconds * _NANO)
            self._begun = min(begun, self._begun or begun)  # the snapshot that is least old
        elif self._begun is None:
            self._begun = int(self._sweep.created * _NANO)

    def _at(self, seconds: float | None) -> int:
        """Nanoseconds since 1970 at a moment of the sweep; now if that is None."""
        if seconds is None or self._begun is None:
            return time.time_ns()
        return self._begun + int(seconds * _NANO)

    def _begin(self, trial: Trial) -> "Span":
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            TraceFlags,
            set_span_in_context,
        )

        trace, span = trace_ids(self._sweep.id, trial.number)
        sampled = TraceFlags(TraceFlags.SAMPLED)
        root = NonRecordingSpan(SpanContext(trace, span, is_remote=True, trace_flags=sampled))
        return self._tracer.start_span(
            f"trial {trial.number}",
            set_span_in_context(root),
            start_time=self._at(trial.started),
            attributes={
                "automl.sweep": self._sweep.name,
                "automl.trial": trial.number,
                "automl.source": trial.source,
                **_attributes("automl.param", trial.params),
            },
        )

    def _begin_attempt(self, found: "_OpenTrial", trial: Trial) -> None:
        from opentelemetry.trace import set_span_in_context

        found.num_attempts = trial.attempts
        found.begun = self._at(trial.started if trial.attempts == 1 else None)
        found.attempt = self._tracer.start_span(
            f"attempt {trial.attempts}",
            set_span_in_context(found.span),
            start_time=found.begun,
            attributes={"automl.trial": trial.number, "automl.attempt": trial.attempts},
        )

    def _end_attempt(self, found: "_OpenTrial", trial: Trial) -> None:
        from opentelemetry.trace import Status, StatusCode

        span, found.attempt = found.attempt, None
        if span is None:
            return
        span.set_attribute("automl.state", str(trial.state))
        if trial.message:
            span.set_attribute("automl.message", trial.message)
        if trial.failure:
            span.set_status(Status(StatusCode.ERROR, trial.failure))
        span.end(self._at(trial.ended))

    def _end(self, trial: Trial) -> None:
        from opentelemetry.trace import Status, StatusCode

        span = self._open.pop(trial.number).span
        span.set_attribute("automl.state", str(trial.state))
        span.set_attribute("automl.attempts", trial.attempts)
        span.set_attributes(_attributes("automl.metric", trial.metrics))
        if trial.failure:
            span.set_attribute("automl.failure", trial.failure)
            span.set_status(Status(StatusCode.ERROR, trial.message or trial.failure))
        span.end(self._at(trial.ended))
        if trial.state.finished:
            self._finished.add(trial.number)


@dataclass
class _OpenTrial:
    """A trial whose span has not ended.

    Args:
        span: of the trial; attempt: of its newest attempt, None once that has ended.
        num_attempts: that have begun; begun: the newest one, in nanoseconds since 1970.
        last_report: key of the newest report that was added as an event.
    """

    span: "Span"
    attempt: "Span | None" = None
    num_attempts: int = 0
    begun: int = 0
    last_report: tuple[int, int] = (0, 0)


def _add_reports(found: _OpenTrial, trial: Trial) -> None:
    """Add the reports that are new as events of the attempt."""
    if found.attempt is None:
        return
    earlier = [point.seconds for point in trial.reports if point.attempt < trial.attempts]
    for point in trial.reports:
        if point.key <= found.last_report:
            continue
        seconds = max(0.0, point.seconds - max(earlier, default=0.0))
        attributes = {"step": point.step, **_attributes("metric", point.metrics)}
        found.attempt.add_event("report", attributes, found.begun + int(seconds * _NANO))
        found.last_report = point.key


def trace_ids(sweep: str, trial: int) -> tuple[int, int]:
    """The id of a trial's trace (128 bits) and of the span that its spans hang on (64 bits)."""
    digest = hashlib.sha256(f"{sweep}/{trial}".encode()).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1


def _attributes(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as attributes, which are texts, numbers and booleans."""
    plain = (str, bool, int, float)
    return {
        f"{prefix}.{key}": value if isinstance(value, plain) else str(value)
        for key, value in values.items()
    }
