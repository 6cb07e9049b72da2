"""Translation under the trainer: metrics, files, resuming, export and translation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware
from workers.__main__ import main
from workers.context import Context
from workers.protocol import Assignment, Ending, Outcome
from workers.run import run
from workers.runtime.processes import run_gang
from workers.training.settings import trainer_options
from workers.workloads.translation import Translation
from workers.workloads.translation.builtin import splits
from workers.workloads.translation.inference import Stepper

SMALL = {
    "width": 32, "num_layers": 2, "num_heads": 4, "feed_forward_ratio": 2, "batch_tokens": 512,
    "learning_rate": 0.01, "warmup_updates": 5, "dropout": 0.0, "eval_sentences": 40,
    "vocabulary_size": 600, "evaluate_updates": 1, "max_updates": 6,
}  # fmt: skip


def train(folder: Path, *, resume: bool = False, **params) -> tuple[Outcome, dict[int, float]]:
    """The outcome and the training loss of each update."""
    chosen = {**SMALL, **params}
    ranks = int(chosen.get("ranks", 1))
    reports = []
    assignment = Assignment(
        "s", 0, 1, chosen, "translation", str(folder), num_ranks=ranks, resume=resume
    )
    if ranks > 1:
        outcome = run_gang(assignment, reports.append, lambda: None)
    else:
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


def test_the_sacrebleu_command_gives_the_same_number(trained):
    folder, outcome, _ = trained
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(folder / "references.valid.txt"),
        "-b",
        "-w",
        "6",
    ]
    command += ["-i", str(folder / "hypotheses.valid.txt"), "-m", "bleu", "chrf"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed) if printed.lstrip().startswith("[") else printed.split()
    assert [float(x) for x in found] == pytest.approx(
        [outcome.metrics["bleu"], outcome.metrics["chrf"]], abs=1e-6
    )
    assert (
        len((folder / "references.valid.txt").read_text().splitlines()) == SMALL["eval_sentences"]
    )


def test_trials_of_a_sweep_share_the_vocabulary(trained):
    folder, _, _ = trained
    (cached,) = (folder.parents[1] / "trials" / "cache").iterdir()
    assert cached.read_bytes() == (folder / "vocabulary.model").read_bytes()


@pytest.mark.parametrize("layout", ["separate", "packed"])
def test_a_run_goes_on_under_another_layout(trained, tmp_path, layout):
    _, _, uninterrupted = trained
    train(tmp_path, max_updates=3)
    _, losses = train(tmp_path, resume=True, attention_layout=layout)
    assert losses[6] == pytest.approx(uninterrupted[6], rel=1e-5)


@pytest.mark.parametrize(
    ("parallelism", "layout"), [("tensor", "packed"), ("pipeline", "interleaved")]
)
def test_parallel_strategies_compute_the_same(trained, tmp_path, parallelism, layout):
    _, _, single = trained
    _, losses = train(tmp_path, parallelism=parallelism, ranks=2, attention_layout=layout)
    assert losses == pytest.approx(single, rel=1e-5)


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
        ({"positions": "rotary"}, "positions is one of sinusoidal, learned"),
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


def test_a_truncated_checkpoint_is_passed_over_and_told(tmp_path):
    train(tmp_path, max_updates=4, checkpoint_updates=2)
    folders = sorted((tmp_path / "checkpoints").iterdir())
    assert [int(path.name) for path in folders] == [2, 4]
    path = folders[-1] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    outcome, losses = train(tmp_path, resume=True, max_updates=5)
    assert outcome.details["damaged_checkpoints"] == ["00000004"]
    assert set(losses) == {3, 4, 5}


def test_one_line_of_10000_words_is_skipped_and_told(tmp_path):
    """In training; in validation it is cut. Line breaks of both kinds are in the files."""
    sides = [list(side) for side in zip(*splits()["train"][:400], strict=True)]
    for lines in sides:
        lines[7] = lines[-1] = "word " * 10_000
    for name, lines in zip("ab", sides, strict=True):
        text = "".join(line + ("\r\n" if i % 2 else "\n") for i, line in enumerate(lines))
        (tmp_path / name).write_bytes(text.encode())
    data = {"name": "parallel", "source": str(tmp_path / "a"), "target": str(tmp_path / "b")}
    small = {
        **SMALL,
        "vocabulary_size": 400,
        "max_updates": 2,
        "max_length": 64,
        "eval_sentences": 20,
    }
    outcome = run(Context(Assignment("s", 0, 1, small, "translation", str(tmp_path), data)))
    assert outcome.ending is Ending.COMPLETED, outcome.details.get("traceback")
    assert outcome.details["skipped_pairs"] >= 1
    lines = (tmp_path / "references.valid.txt").read_text().splitlines()
    assert len(lines) == 20
    assert len(lines[-1].split()) == 10_000


def test_decoding_on_rank_0_is_a_sign_of_life(tmp_path, monkeypatch):
    """Translating for long must not look like a hang: orders are looked for at every step of it."""
    asked, slow = [], []
    step = Stepper.step

    def slowly(self, ids, state):
        begun = len(asked)
        time.sleep(0.21)  # the trainer looks five times a second
        found = step(self, ids, state)
        slow.append(len(asked) - begun)
        return found

    monkeypatch.setattr(Stepper, "step", slowly)
    chosen = {**SMALL, "max_updates": 1, "eval_sentences": 2, "max_length": 12}
    run(
        Context(
            Assignment("s", 0, 1, chosen, "translation", str(tmp_path)),
            stop_requested=lambda: asked.append(1),
        )
    )
    assert len(slow) > 3
    assert min(slow) == 1


def test_the_other_rank_waits_for_a_long_search(trained, tmp_path):
    """Rank 0 alone translates with a beam of 5 after each update; the losses stay the same."""
    _, _, single = trained
    outcome, losses = train(
        tmp_path, parallelism="ddp", ranks=2, beam=5, eval_sentences=60, max_updates=2
    )
    assert losses == pytest.approx({step: single[step] for step in (1, 2)}, rel=1e-5)
    assert len((tmp_path / "hypotheses.valid.txt").read_text().splitlines()) == 60
    assert 0 <= outcome.metrics["bleu"] <= 100
