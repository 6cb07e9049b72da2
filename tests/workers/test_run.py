"""What happens in a trial becomes one outcome."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import torch
from fake_gpu import FakeCuda

from search_spaces.errors import TrialFailure
from workers.context import Context
from workers.functions.numbers import SpeedProbe
from workers.protocol import (
    Assignment,
    Ending,
    Limits,
    Outcome,
    StopRequest,
)
from workers.run import run
from workers.runtime.processes import combine


def raiser(error):
    def objective(context):
        raise error

    return objective


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            "out_of_memory",
        ),
        (torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors"), "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `c"), "out_of_memory"),
        (RuntimeError("cuDNN Frontend error: unable to find an engine that"), "out_of_memory"),
        (RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), "out_of_memory"),
        (TrialFailure("timeout", "too slow"), "timeout"),
        (FloatingPointError("nan"), "non_finite"),
        (ValueError("a mistake"), "crashed"),
        (SystemExit(3), "crashed"),
    ],
)
def test_an_exception_becomes_a_failure(runner, error, kind):
    outcome = runner(raiser(error))
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, kind)
    assert outcome.message
    assert type(error).__name__ in outcome.details["traceback"]


def test_a_keyboard_interrupt_is_the_callers(runner):
    runner.objective = raiser(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runner()


def reports(context):
    return {"kept": context.report(1, loss=2.0)}


@pytest.mark.parametrize(
    ("objective", "how", "ending"),
    [
        (reports, StopRequest.STOP, Ending.STOPPED),
        (reports, StopRequest.PAUSE, Ending.PAUSED),
        (SpeedProbe(lambda context: None, 3), StopRequest.STOP, Ending.STOPPED),
        (lambda context: {"loss": 1}, StopRequest.STOP, Ending.COMPLETED),
    ],
    ids=["stop", "pause", "where it asks, before a report", "it did not ask"],
)
def test_an_objective_that_was_asked_to_stop(runner, objective, how, ending):
    outcome = runner(objective, stop_requested=lambda: how)
    assert (outcome.ending, outcome.failure) == (ending, None)
    assert outcome.metrics.get("kept", 0.0) == 0.0


def test_optunas_pruned_trial_has_stopped_itself(runner):
    def objective(context):
        context.report(1, loss=2.0)
        raise optuna.TrialPruned

    outcome = runner(objective)
    assert (outcome.ending, outcome.failure) == (Ending.STOPPED, None)
    assert (outcome.message, outcome.pruned) == ("it has raised TrialPruned", True)
    assert not runner(stop_requested=lambda: StopRequest.STOP).pruned  # it was asked to
    failed = runner(raiser(optuna.TrialPruned("too large")))
    assert (failed.ending, failed.message) == (Ending.FAILED, "TrialPruned: too large")


class Hostile:
    """Can be neither pickled nor shown."""

    def __reduce__(self):
        raise SystemExit(7)

    __repr__ = __reduce__


LOOP: dict[str, object] = {}
LOOP["loop"] = LOOP


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Hostile(), "Hostile"),
        ({"in": [Hostile(), 1]}, {"in": ["Hostile", 1]}),
        (torch.ones(2), "Tensor of 2: tensor([1., 1.])"),
        ((1, 2.5, None, "text"), [1, 2.5, None, "text"]),
        ({1: True}, {"1": True}),
        (LOOP, "dict of 1: " + "{'loop': " * 6 + "{...}" + "}" * 6),
        pytest.param(10**5000, "int", id="too many digits"),
    ],
)
def test_details_of_any_kind_become_json(runner, value, kept):
    def objective(context):
        context.details["given"] = value
        return {"loss": 1.0}

    outcome = runner(objective)
    assert (outcome.failure, outcome.details["given"]) == (None, kept)


@pytest.mark.parametrize("result", [3.0, [1], {"loss": "low"}, {"loss": None}])
def test_what_is_no_metrics_is_a_missing_metric(runner, result):
    assert runner(lambda context: result).failure == "missing_metric"


def test_a_report_after_the_end_does_not_count(runner):
    """A thread that an objective has left behind reports while its result is read."""

    def objective(context):
        class Late(dict):
            def items(self):
                context.report(2, loss=-1.0)
                return super().items()

        context.report(1, loss=1.0)
        return Late(loss=1.0)

    assert runner(objective).metrics == {"loss": 1.0}
    assert [report.step for report in runner.reports] == [1]


def full(number, text="cannot save"):
    """As a library says it that wraps the error of the system."""
    error = RuntimeError(text)
    error.__cause__ = OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    ("error", "no_room"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.ENOSPC, "in words of another language"), True),
        (full(errno.ENOSPC), True),
        (full(errno.EDQUOT), True),
        (full(errno.EACCES), False),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576"), True),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (RuntimeError("[enforce fail at inline_container.cc:197] . failed finding"), False),
    ],
)
def test_a_full_disk_is_not_the_fault_of_the_configuration(runner, error, no_room):
    outcome = runner(raiser(error))
    assert outcome.failure == ("preempted" if no_room else "crashed")
    assert outcome.worker_lost is no_room
    assert ("there is no room on the disk: " in outcome.message) is no_room


def test_memory_is_measured_above_what_was_there_before(runner):
    kept = torch.ones(10_000_000)

    def objective(context):
        torch.ones(25_000_000).sum()
        return {}

    assert 99e6 <= runner(objective).peak_memory_bytes <= 125e6
    assert 99e6 <= runner().peak_memory_bytes <= 125e6, (
        "the second trial in a process measures the same"
    )
    del kept


def test_the_first_cause_is_blamed():
    crash = Outcome(0, 1, Ending.FAILED, failure="crashed", message="reset", peak_memory_bytes=5)
    memory = replace(crash, failure="out_of_memory", message="allocator", peak_memory_bytes=9)
    combined = combine([crash, memory])
    assert (combined.failure, combined.peak_memory_bytes) == ("out_of_memory", 9)
    gone = replace(crash, worker_lost=True, failed_at=9.0, message="killed")
    combined = combine([replace(crash, failed_at=1.0), gone])
    assert (combined.message, combined.worker_lost) == ("killed", True)


WSL = "5.15.90.1-microsoft-standard-WSL2"  # where the driver goes on in main memory


@pytest.mark.parametrize(
    ("gpus", "limit", "release", "share"),
    [
        (1.0, None, "", 1.0),
        (1.0, 20_000_000_000, "", 0.25),
        (0.5, None, "", 0.49375),
        (0.5, 8 * 10**9, "", 0.1),
        (1.0, None, WSL, 0.75),
    ],
)
def test_a_rank_may_allocate_its_share_of_a_gpu(runner, monkeypatch, gpus, limit, release, share):
    cuda = FakeCuda(reserved=20_000_000_000 if release else 0).install(monkeypatch.setattr)
    monkeypatch.setattr("platform.release", lambda: release)
    a = replace(runner.assignment(limits=Limits(memory_bytes=limit)), gpus=gpus)
    outcome = run(Context(a, print, lambda: None, device="cuda:0"), lambda trial: {"loss": 1.0})
    assert outcome.ending is Ending.COMPLETED
    assert cuda.fraction == pytest.approx(share)


def test_the_peak_of_a_gpu_is_kept(runner, monkeypatch):
    cuda = FakeCuda(allocated=1_000).install(monkeypatch.setattr)

    def objective(trial):
        cuda.allocated = 501_000
        return {"loss": 1.0}

    context = Context(runner.assignment(), print, lambda: None, device="cuda:0")
    outcome = run(context, objective)
    assert outcome.peak_memory_bytes == 500_000


@pytest.mark.parametrize("named", ["nothing", "goals", "constrained"])
def test_a_small_peak_of_a_function_is_told_only_if_the_sweep_names_it(
    tmp_path: Path, named: str
) -> None:
    metric = ("peak_memory_bytes",)
    fields = {} if named == "nothing" else {named: metric}
    assignment = Assignment("s", 0, 1, {}, None, str(tmp_path), **fields)
    outcome = run(Context(assignment), lambda trial: {"loss": 1.0})
    assert outcome.failure is None, outcome.message
    assert (outcome.peak_memory_bytes is None) == (named == "nothing")
