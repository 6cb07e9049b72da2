"""Translation under the trainer: metrics, files, resuming, export, and translation by exports."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from strategies import run_all

from search_spaces.errors import DataError, UsageError
from search_spaces.hardware import Hardware
from workers.__main__ import main
from workers.context import Context
from workers.export import export
from workers.protocol import Assignment, Ending, Outcome
from workers.run import run
from workers.workloads.translation import Translation
from workers.workloads.translation import vocabulary as subwords
from workers.workloads.translation.translator import Translator

SMALL = {
    "width": 32, "num_layers": 2, "num_heads": 4, "feed_forward_ratio": 2, "batch_tokens": 512,
    "learning_rate": 0.01, "warmup_updates": 5, "dropout": 0.0, "eval_sentences": 20,
    "vocabulary_size": 600, "evaluate_updates": 1, "max_updates": 6,
}  # fmt: skip
DATA = {"train": 2000, "valid": 20}


def attempt(folder: Path, *, resume: bool = False, **params) -> Assignment:
    return Assignment(
        "s", 0, 1, {**SMALL, **params}, "translation", str(folder), DATA, resume=resume
    )


def train(folder: Path, **given) -> tuple[Outcome, dict[int, float]]:
    reports = []
    outcome = run(Context(attempt(folder, **given), reports.append))
    assert outcome.ending is Ending.COMPLETED, outcome.details.get("traceback")
    return outcome, {r.step: r.metrics["train_loss"] for r in reports if "train_loss" in r.metrics}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Outcome, dict[int, float]]:
    folder = tmp_path_factory.mktemp("sweep") / "trials" / "0"
    return (folder, *train(folder))


@pytest.fixture(scope="module")
def exported(trained) -> Path:
    folder, outcome, _ = trained
    files = export(Translation(SMALL, DATA, {}), folder, folder / "model", outcome.metrics)
    assert {"model.safetensors", "vocabulary.model", "architecture.json"} <= files.keys()
    return folder / "model"


def test_metrics_are_there_and_the_loss_falls(trained):
    folder, outcome, losses = trained
    assert {"bleu", "chrf", "loss", "train_loss", "updates"} <= outcome.metrics.keys()
    assert outcome.metrics["updates"] == 6
    assert 0 <= outcome.metrics["bleu"] <= outcome.metrics["chrf"] <= 100
    assert losses[6] < losses[1] - 0.5
    assert outcome.metrics["loss"] < math.log(600)
    assert "version" in outcome.details["bleu_signature"]
    (shared,) = (folder.parent / "cache").iterdir()  # by all trials of a sweep
    assert shared.read_bytes() == (folder / "vocabulary.model").read_bytes()


def test_a_run_goes_on_under_another_layout(trained, tmp_path):
    _, _, uninterrupted = trained
    train(tmp_path, max_updates=3)
    _, losses = train(tmp_path, resume=True, attention_layout="packed")
    assert losses[6] == pytest.approx(uninterrupted[6], rel=1e-5)


def translated(context: Context):
    return Translation({**SMALL, **context.params}, DATA, {}).run(context)


def test_parallel_strategies_compute_the_same(trained, tmp_path):
    _, _, single = trained
    trials = [
        {"parallelism": one, "attention_layout": layout, "max_updates": 2}
        for one, layout in (("tensor", "packed"), ("pipeline", "interleaved"))
    ]
    for found in run_all(tmp_path, trials, 2, translated):
        losses = {int(update): loss for update, loss in found["train_loss"].items()}
        expected = {update: single[update] for update in (1, 2)}
        assert losses == pytest.approx(expected, rel=1e-5), found["message"]


def test_an_export_translates_as_the_model_did(exported):
    sources = list(Translation(SMALL, DATA, {}).prepared.splits.valid.sources)
    command = [sys.executable, "-m", "workers", "translation", "translate", "--beam", "1"]
    printed = subprocess.run(
        [*command, "--model", str(exported)],
        input="\n".join([*sources[:9], "", *sources[9:]]).encode(),
        capture_output=True,
    )
    expected = (exported.parent / "hypotheses.valid.txt").read_text().split("\n")
    assert printed.stdout.decode().split("\n") == [*expected[:9], "", *expected[9:]]


def test_wrong_options_are_refused():
    for fixed, message in (
        ({"num_heads": 5}, "multiple of num_heads"),
        ({"batch_tokens": 0}, "batch_tokens must be a whole number"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ):
        with pytest.raises(UsageError, match=message):
            Translation.check({"name": "builtin"}, fixed)


def test_the_space_has_a_default_and_a_reason_for_what_it_lacks():
    hardware = Hardware(num_cpus=2, memory_bytes=2**33, precisions=("fp32", "bf16"))
    promised = {"precision", "batch_tokens", "attention_layout", "parallelism", "learning_rate"}
    promised |= {"warmup_updates", "dropout", "label_smoothing", "num_layers", "width", "num_heads"}
    assert promised <= (Translation.space(hardware).default() or {}).keys()
    assert "tf32" in {dropped.value for dropped in Translation.dropped(hardware)}


def test_the_learning_rate_warms_up_and_decays():
    workload = Translation({"learning_rate": 2e-3, "warmup_updates": 100}, {}, {})
    assert workload.learning_rate(1) == pytest.approx(2e-5)
    assert workload.learning_rate(100) == pytest.approx(2e-3)
    assert workload.learning_rate(400) == pytest.approx(1e-3)


def test_going_on_with_another_vocabulary_is_refused(trained):
    folder, _, _ = trained
    before = (folder / "vocabulary.model").read_bytes()
    outcome = run(Context(attempt(folder, resume=True, vocabulary_kind="unigram")))
    assert outcome.ending is Ending.FAILED
    assert "differs from the vocabulary of this data" in outcome.message
    assert (folder / "vocabulary.model").read_bytes() == before


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.model", "architecture.json"])
def test_a_damaged_folder_is_named(exported, tmp_path, capsys, name):
    folder = shutil.copytree(exported, tmp_path / "model")
    content = (folder / name).read_bytes()
    small = subwords.train(["a b c d", "e f g h"], 20).proto
    for damaged in (content[:-100], b"{}", small):
        (folder / name).write_bytes(damaged)
        with pytest.raises(DataError, match="does not hold"):
            Translator.load(folder)
    assert main(["translation", "translate", "--model", str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {folder} does not hold an exported model")


def test_references_are_compared_with_what_is_translated(exported, tmp_path, capsys, monkeypatch):
    def run(*more: str) -> tuple[int, str, str]:
        text = "".join(f"the king sees {n} dogs\n" for n in range(5)).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        command = ["translation", "translate", "--model", str(exported), "--beam", "1"]
        return (main([*command, *more]), *capsys.readouterr())

    said = [f"der König sieht {n} Hunde" for n in range(5)]  # the model has learned too little
    monkeypatch.setattr(Translator, "translate", lambda self, lines, search: said[: len(lines)])
    reference = tmp_path / "reference.txt"
    reference.write_text(run()[1])
    assert run("--reference", str(reference))[:2] == (0, "BLEU 100.00\n")
    reference.write_text("one line\n")
    status, _, error = run("--reference", str(reference))
    assert (status, "standard input has 5 lines" in error) == (2, True)
    assert run("--reference", str(tmp_path / "absent"))[0] == 2
