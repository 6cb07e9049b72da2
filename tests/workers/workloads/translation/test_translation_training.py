"""Translation under the trainer: metrics, files, resuming, export and translation."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from strategies import run_all

from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware
from workers.__main__ import main
from workers.context import Context
from workers.protocol import Assignment, Ending, Outcome
from workers.run import run
from workers.training import trainer_options
from workers.workloads.translation import Translation

SMALL = {
    "width": 32, "num_layers": 2, "num_heads": 4, "feed_forward_ratio": 2, "batch_tokens": 512,
    "learning_rate": 0.01, "warmup_updates": 5, "dropout": 0.0, "eval_sentences": 40,
    "vocabulary_size": 600, "evaluate_updates": 1, "max_updates": 6,
}  # fmt: skip


def train(folder: Path, *, resume: bool = False, **params) -> tuple[Outcome, dict[int, float]]:
    """The outcome and the training loss of each update."""
    reports = []
    assignment = Assignment(
        "s", 0, 1, {**SMALL, **params}, "translation", str(folder), resume=resume
    )
    folder.mkdir(parents=True, exist_ok=True)
    outcome = run(Context(assignment, reports.append))
    assert outcome.ending is Ending.COMPLETED, outcome.details.get("traceback")
    return outcome, {r.step: r.metrics["train_loss"] for r in reports if "train_loss" in r.metrics}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Outcome, dict[int, float]]:
    folder = tmp_path_factory.mktemp("sweep") / "trials" / "0"
    return (folder, *train(folder))


def test_metrics_are_there_and_the_loss_falls(trained):
    _, outcome, losses = trained
    assert {"bleu", "chrf", "loss", "train_loss", "updates"} <= outcome.metrics.keys()
    assert outcome.metrics["updates"] == 6
    assert 0 <= outcome.metrics["bleu"] <= outcome.metrics["chrf"] <= 100
    assert losses[6] < losses[1] - 0.5
    assert outcome.metrics["loss"] < math.log(600)
    assert "version" in outcome.details["bleu_signature"]


def test_trials_of_a_sweep_share_the_vocabulary(trained):
    folder, _, _ = trained
    (cached,) = (folder.parents[1] / "trials" / "cache").iterdir()
    assert cached.read_bytes() == (folder / "vocabulary.model").read_bytes()


def test_a_run_goes_on_under_another_layout(trained, tmp_path):
    _, _, uninterrupted = trained
    train(tmp_path, max_updates=3)
    _, losses = train(tmp_path, resume=True, attention_layout="packed")
    assert losses[6] == pytest.approx(uninterrupted[6], rel=1e-5)


def translated(context: Context):
    return Translation({**SMALL, **context.params}, {}, {}).run(context)


def test_parallel_strategies_compute_the_same(trained, tmp_path):
    _, _, single = trained
    pairs = (("tensor", "packed"), ("pipeline", "interleaved"))
    trials = [{"parallelism": one, "attention_layout": layout} for one, layout in pairs]
    for found in run_all(tmp_path, trials, 2, translated):
        losses = {int(update): loss for update, loss in found["train_loss"].items()}
        assert losses == pytest.approx(single, rel=1e-5), found["message"]


def test_export_and_translate(trained, tmp_path, capsysbinary, monkeypatch):
    from workers.export import export

    folder, outcome, _ = trained
    workload = Translation({**SMALL}, {}, {})
    files = export(workload, folder, tmp_path / "model", outcome.metrics)
    assert {
        "model.safetensors",
        "vocabulary.model",
        "architecture.json",
        "README.md",
    } <= files.keys()
    sources = list(workload.prepared.splits.valid.sources[:40])
    text = "\n".join([*sources[:20], "", *sources[20:]]) + "\n"
    command = ["translate", "--model", str(tmp_path / "model"), "--beam", "1"]
    printed = subprocess.run(
        [sys.executable, "-m", "workers", "translation", *command],
        input=text.encode(),
        capture_output=True,
    )
    lines = printed.stdout.decode().split("\n")
    expected = (folder / "hypotheses.valid.txt").read_text().split("\n")
    assert lines == [*expected[:20], "", *expected[20:]]
    (tmp_path / "model" / "model.safetensors").write_bytes(b"truncated")
    assert main(["translation", *command]) == 2
    assert b"does not hold an exported model" in capsysbinary.readouterr().err


def test_wrong_options_are_refused():
    for fixed, message in (
        ({"num_heads": 5}, "multiple of num_heads"),
        ({"batch_tokens": 0}, "batch_tokens must be a whole number"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ):
        with pytest.raises(UsageError, match=message):
            Translation.check({"name": "builtin"}, fixed)


def test_the_space_has_a_default_and_a_reason_for_what_it_lacks():
    space = Translation.space(Hardware(num_cpus=2, memory_bytes=2**33, precisions=("fp32", "bf16")))
    default = space.default()
    assert default is not None
    issue = {
        *(
            "precision",
            "batch_tokens",
            "attention_layout",
            "parallelism",
            "learning_rate",
            "warmup_updates",
            "dropout",
        ),
        *("label_smoothing", "num_layers", "width", "num_heads"),
    }
    assert issue <= space.parameters.keys()
    unset = {**trainer_options(), **Translation.defaults}
    assert all(default[name] == unset[name] for name in issue)
    assert "tf32" in {
        d.value for d in Translation.dropped(Hardware(num_cpus=2, memory_bytes=2**33))
    }


def test_the_learning_rate_warms_up_and_decays():
    workload = Translation({"learning_rate": 2e-3, "warmup_updates": 100}, {}, {})
    assert workload.learning_rate(1) == pytest.approx(2e-5)
    assert workload.learning_rate(100) == pytest.approx(2e-3)
    assert workload.learning_rate(400) == pytest.approx(1e-3)


def test_going_on_with_another_vocabulary_is_refused(trained, tmp_path):
    folder = tmp_path / "trial"
    train(folder, max_updates=1)
    before = (folder / "vocabulary.model").read_bytes()
    other = Assignment(
        "s", 0, 1, {**SMALL, "vocabulary_kind": "unigram"}, "translation", str(folder), resume=True
    )
    outcome = run(Context(other))
    assert outcome.ending is Ending.FAILED
    assert "differs from the vocabulary of this data" in outcome.message
    assert (folder / "vocabulary.model").read_bytes() == before
