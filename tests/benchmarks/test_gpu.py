"""The GPU benchmark up to the device: its stages run on the CPU in tiny sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.training import gpu
from benchmarks.training.gpu_stages import _runner
from benchmarks.training.gpu_stages._case import Case, Row, Stage, Target
from benchmarks.training.gpu_stages._child import measured, stage_of
from benchmarks.training.gpu_stages._runner import Book, run_stage

TINY = Target("cpu", tiny=True)
GPU = Target()
MACHINE = {"gpu": "fake", "torch": "2"}
ABSENT = ("ray", "sqlalchemy", "pydantic", "alembic", "optuna", "ax")
BLOCKER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Absent())
"""
TRIED = {
    "machine": ("hardware",),
    "knobs": ("precision=bf16 attention_layout=packed attention_kernel=sdpa",),
    "failures": ("poisoned context",),
    "waits": ("updates 5 to 20", "a rank that fails"),
    "memory_estimates": ("16x1024x2000 precision=bf16",),
    "losses": ("fp32", "bf16", "decoding in fp32"),
    "named_knobs": ("as they are", "chunked_loss=True"),
    "process_groups": ("single, 1 rank", "ddp, 1 rank"),
    "busy_share": ("translation",),
    "published": ("image_classification, tuned", "sentiment, tuned"),
}

SAME_ON_CPUS = ("failures", "losses", "named_knobs", "process_groups")  # their claims hold there


@pytest.mark.parametrize("stage", gpu.STAGES)
def test_a_stage_measures_judges_and_shows_its_cases(stage: str) -> None:
    kind = stage_of(stage)
    cases = {case.name: case for case in kind.cases(TINY, {})}
    rows = {}
    for name in TRIED[stage]:
        rows[name] = measured(TINY, stage, cases[name])
        assert "failure" not in rows[name], rows[name]
        assert kind.line(rows[name])
    held = {claim.name: claim.holds for claim in kind.claims(rows)}
    assert held
    if stage in (
        "failures",
        "losses",
        "named_knobs",
        "process_groups",
    ):  # figures that mean something on a CPU
        assert False not in held.values()
        assert True in held.values()


@pytest.mark.parametrize("stage", gpu.STAGES)
def test_no_row_is_no_claim(stage: str) -> None:
    assert not any(claim.holds for claim in stage_of(stage).claims({}))


def test_two_ranks_share_a_device_over_gloo() -> None:
    rows = {
        name: measured(TINY, "process_groups", case)
        for name, case in cases("process_groups", TINY).items()
        if case.settings["ranks"] == 2
    }
    claims = stage_of("process_groups").claims(rows)
    assert [claim.holds for claim in claims] == [None, None, None, True], rows


def cases(stage: str, target: Target) -> dict[str, Case]:
    found = stage_of(stage).cases(target, {})
    named = {case.name: case for case in found}
    assert len(named) == len(found)
    return named


def test_the_cases_on_a_gpu_are_those_that_were_asked_for() -> None:
    knobs = cases("knobs", GPU).values()
    assert sum("compile" not in case.settings for case in knobs) == 24
    compiled = [case.process for case in knobs if "compile" in case.settings]
    assert len(set(compiled)) == len(compiled) > 0
    assert len(cases("memory_estimates", GPU)) == 20
    assert {"tf32", "fp16"} <= set(cases("losses", GPU))


def test_the_busy_share_is_that_of_the_fastest_row() -> None:
    rows = {
        "slow": {"settings": {"precision": "fp32"}, "tokens_per_second": 1.0},
        "fast": {"settings": {"precision": "fp16"}, "tokens_per_second": 2.0},
        "broken": {"failure": "crashed"},
    }
    (case,) = stage_of("busy_share").cases(GPU, {"knobs": rows})
    assert case.settings == {"precision": "fp16"}


def test_overlapping_kernels_count_once() -> None:
    from benchmarks.training.gpu_stages.busy_share import covered

    assert covered([(0, 2), (1, 3), (5, 6), (5, 5.5)]) == 4


def test_figures_that_miss_their_limits_are_missed() -> None:
    judged: dict[str, dict[str, Row]] = {
        "failures": {"poisoned context": {"failures": [None, "crashed", "crashed", "crashed"],
                                          "values": [1.0, None, None, None]}},
        "memory_estimates": {str(i): {"estimate": 2.0 + i, "measured": 1.0} for i in range(3)},
        "losses": {"fp32": {"losses": [1.0, 2.0]}, "bf16": {"losses": [1.0, 2.05]}},
        "busy_share": {"translation": {"share": 0.5}},
        "published": {"sentiment, tuned": {"seconds": 16.5}},
    }  # fmt: skip
    for stage, rows in judged.items():
        assert False in [claim.holds for claim in stage_of(stage).claims(rows)], stage


class FakeProcess:
    """Answers as the script says: a row, None for no answer."""

    script: dict[str, Row | None] = {}
    started = 0

    def __init__(self, target: Target) -> None:
        type(self).started += 1

    def ask(self, stage: str, case: Case, seconds: float) -> Row | None:
        return self.script[case.name]

    def close(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProcess]:
    monkeypatch.setattr(_runner, "MeasuringProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "started", 0)
    return FakeProcess


def test_rows_are_kept_and_only_what_is_missing_or_failed_is_measured(
    fake: type[FakeProcess], tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    asked = [Case("a", process="p"), Case("b", process="p"), Case("c", process="p")]
    fake.script = {"a": {"x": 1}, "b": {"failure": "broke"}, "c": None}
    assert run_stage("s", asked, TINY, Book(path, MACHINE), 500.0) == []
    assert fake.started == 2  # not again after a failure
    again = Book(path, MACHINE)
    assert again.rows("s")["a"]["x"] == 1
    assert "more than 120 s" in again.rows("s")["c"]["failure"]
    assert [case.name for case in again.missing("s", asked)] == ["b", "c"]
    assert Book(path, {**MACHINE, "gpu": "other"}).rows("s") == {}


def test_a_stage_ends_in_time_and_a_case_that_it_cut_is_not_to_blame(
    fake: type[FakeProcess],
) -> None:
    asked = [Case("a"), Case("b")]
    fake.script = {"a": None, "b": {"x": 1}}
    book = Book(None, MACHINE)
    assert run_stage("s", asked, TINY, book, 10.0) == asked
    assert run_stage("s", asked, TINY, book, -1.0) == asked
    assert book.rows("s") == {}


def test_a_process_that_dies_is_a_failure_of_its_case() -> None:
    process = _runner.MeasuringProcess(TINY)
    try:
        os.kill(process._process.pid, 9)
        row = process.ask("machine", Case("hardware"), 60.0)
    finally:
        process.close()
    assert row is not None
    assert row["failure"] == "the process ended with status -9"


def test_an_exception_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(target: Target, case: Case) -> Row:
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    stage = Stage("", lambda target, known: [], broken, lambda rows: [], str)
    module = __import__("benchmarks.training.gpu_stages.machine", fromlist=["STAGE"])
    monkeypatch.setattr(module, "STAGE", stage)
    row = measured(TINY, "machine", Case("x"))
    assert row["failure"] == "RuntimeError: CUDA error: an illegal memory access"


def test_without_a_gpu_it_says_so_and_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--check", "--rows", str(tmp_path / "rows.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("NOT RUN: there is no GPU")


def test_with_a_gpu_the_verdict_is_its_status(
    fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Fake")
    fake.script = {"translation": {"share": 0.91, "settings": {}, "launches_per_update": 1.0,
                                   "seconds_per_update": 0.1, "flops_per_update": 1e9,
                                   "mfu": None}}  # fmt: skip
    assert gpu.main(["busy_share", "--quick", "--check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "HELD: all 2"
    fake.script["translation"] = {**fake.script["translation"], "share": 0.5}
    assert gpu.main(["busy_share", "--quick", "--check"]) == 1
    assert "NOT HELD 1 of 2" in capsys.readouterr().out


def test_it_runs_where_neither_ray_nor_the_ledgers_packages_are(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    script = str(gpu.ROWS.parents[1] / "training/gpu.py")
    command = [sys.executable, script, "failures", "--quick", "--rehearse", "--check"]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "HELD: all 1"


def test_an_unknown_stage_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu.main(["knob"])
    assert "a stage is one of machine, knobs" in capsys.readouterr().err
