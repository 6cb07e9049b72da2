"""Runs the trainings and translations of `sockeye.py`, and stores their rows."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.common.store import append, load
from benchmarks.peers.client import ROOT, environment

PEERS = ROOT / "benchmarks" / "peers"
KEYS = ("what", "system", "seed", "round")
PEAK_RATE = 2e-3
WARMUP = 200
FIXED: dict[str, Any] = {
    "vocabulary_size": 8004,
    "vocabulary_kind": "word",
    "max_length": 96,
    "num_layers": 2,
    "width": 256,
    "num_heads": 4,
    "feed_forward_ratio": 4,
    "batch_tokens": 2048,
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "learning_rate": PEAK_RATE,
    "warmup_updates": WARMUP,
    "evaluate_seconds": None,
    "checkpoint_seconds": None,
}
OURS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32", "matmul_precision": "medium"},
    "bf16": {"precision": "bf16", "matmul_precision": "medium"},
}
PREPARE = """
    -s text/train.en -t text/train.de -o prepared --max-seq-len 95:95 --shared-vocab
    --num-words 8000
"""
SIZE = """
    --num-layers 2:2 --transformer-model-size 256 --transformer-attention-heads 4
    --transformer-feed-forward-num-hidden 1024 --weight-tying-type src_trg_softmax
    --batch-type word --batch-size 2048
    --optimizer adam --optimizer-betas 0.9:0.98 --label-smoothing 0.1 --max-seq-len 95:95
    --learning-rate-scheduler-type inv-sqrt-decay --decode-and-evaluate 0 --use-cpu
"""
SCORE = """
    --source text/valid.en --target text/valid.de --output scores --score-type neglogprob
    --length-penalty-alpha 0 --use-cpu --output-type score --max-seq-len 200:200
"""
RATE = f"""
    --learning-rate-warmup {WARMUP} --initial-learning-rate {PEAK_RATE * math.sqrt(WARMUP)}
"""


class SockeyeComparison:
    """Measures the missing rows.

    Args:
        work: folder of text and models.
        kept: file of the rows.
        threads: of each process.
        updates: of each training.
        systems: which systems to measure; empty for all.
    """

    def __init__(
        self, work: Path, kept: Path, threads: int, updates: int, systems: Collection[str]
    ) -> None:
        self.work = work
        self.kept = kept
        self.threads = threads
        self.updates = updates
        self.systems = systems
        self.data = {"name": "parallel", "dir": str(work / "text")}
        self.rows = load(kept, *KEYS)

    def keep(self, what: str, system: str, seed: int, round_: int, **values: Any) -> None:
        row = {
            "what": what,
            "system": system,
            "seed": seed,
            "round": round_,
            "threads": self.threads,
            **values,
        }
        append(self.kept, row)
        self.rows[what, system, seed, round_] = row
        print(
            {key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()}, flush=True
        )

    def missing(self, what: str, system: str, seed: int, round_: int) -> bool:
        return (what, system, seed, round_) not in self.rows and (
            not self.systems or system in self.systems
        )

    def sockeye(self, command: str, *options: str) -> dict[str, Any]:
        driver = [str(environment("sockeye")), str(PEERS / "sockeye_driver.py")]
        return self._run([*driver, command], list(options))

    def ours(self, command: str, **options: Any) -> dict[str, Any]:
        driver = [sys.executable, str(PEERS / "translation_driver.py")]
        return self._run([*driver, command], [json.dumps({"threads": self.threads, **options})])

    def _run(self, command: list[str], options: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            result = Path(folder) / "result.json"
            single = {"OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [*command, str(result), *options],
                env={**os.environ, **single},
                cwd=self.work,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
            found: dict[str, Any] = json.loads(result.read_text())
            return found

    def train_theirs(self, name: str, updates: int, seed: int) -> dict[str, Any]:
        if not (self.work / "prepared").exists():
            self.sockeye("prepare_data", *PREPARE.split())
        data = f"-d prepared -vs text/valid.en -vt text/valid.de -o {name}"
        length = f"--max-updates {updates} --checkpoint-interval 100 --seed {seed}"
        return self.sockeye("train", *f"{data} {SIZE} {RATE} {length}".split())

    def train_ours(
        self, name: str, updates: int, seed: int, kind: str, **more: Any
    ) -> dict[str, Any]:
        fixed = {
            **FIXED,
            **OURS[kind],
            "max_updates": updates,
            "max_epochs": None,
            **more.pop("fixed", {}),
        }
        folder = self.work / name / name  # vocabularies are kept a folder above
        return self.ours(
            "train", folder=str(folder), data=self.data, fixed=fixed, seed=seed, **more
        )

    def speed(self, rounds: int) -> None:
        """Short trainings in turn; the first update ends the start."""
        for i in range(rounds):
            for system in ("sockeye", *OURS):
                if self.missing("speed", system, 0, i):
                    if system == "sockeye":
                        # Sockeye would continue a training that is there.
                        shutil.rmtree(self.work / "speed", ignore_errors=True)
                        found = self.train_theirs("speed", self.updates, i + 1)
                    else:
                        fixed = {"eval_sentences": 8}
                        found = self.train_ours("trials", self.updates, i + 1, system, fixed=fixed)
                    steps = found["steps"]
                    count = sum(row[2] for row in steps[2:])
                    self.keep(
                        "speed",
                        system,
                        0,
                        i,
                        updates=len(steps) - 1,
                        peak_bytes=found["peak_bytes"],
                        cpu_seconds=(steps[-1][0] - steps[1][0]) / count,
                        start=steps[1][0],
                        wall_seconds=(steps[-1][1] - steps[1][1]) / count,
                    )

    def quality(self, seeds: int) -> None:
        """Perplexity and BLEU (beam 5) after `updates` updates. Interrupted trainings continue."""
        for seed in range(1, seeds + 1):
            for system in (*OURS, "sockeye"):
                name = f"{system}-{seed}-{self.updates}"
                if not self.missing("quality", system, seed, self.updates):
                    continue
                if system == "sockeye":
                    found = self.train_theirs(name, self.updates, seed)
                    nats = self.score(name)
                else:
                    fixed = {"eval_sentences": 2000, "checkpoint_updates": 50}
                    found = self.train_ours(
                        name, self.updates, seed, system, export=True, resume=True, fixed=fixed
                    )
                    nats = found["metrics"]["loss"]
                bleu = {
                    split: self.decode(system, name, split, 5)[1] for split in ("valid", "test")
                }
                self.keep(
                    "quality",
                    system,
                    seed,
                    self.updates,
                    perplexity=math.exp(nats),
                    **bleu,
                    peak_bytes=found["peak_bytes"],
                )

    def score(self, name: str) -> float:
        """Sockeye's cross-entropy of a target token on the validation sentences."""
        self.sockeye("score", *SCORE.split(), "-m", name)
        total = sum(float(line) for line in (self.work / "scores").read_text().split())
        lines = (self.work / "text/valid.de").read_text().splitlines()
        return total / sum(len(line.split()) + 1 for line in lines)

    def decode(self, system: str, name: str, split: str, beam: int) -> tuple[dict[str, Any], float]:
        """The result of the run, and BLEU on the words without further tokenisation."""
        from sacrebleu.metrics import BLEU

        source = self.work / f"text/{split}.en"
        output = self.work / f"{split}.output"
        if system == "sockeye":
            files = ["-i", str(source), "-o", str(output), "-m", name]
            size = f"--batch-size 16 --beam-size {beam} --use-cpu"
            found = self.sockeye("translate", *files, *size.split())
        else:
            model = str(self.work / name / name / "export")
            found = self.ours(
                "translate",
                model=model,
                source=str(source),
                output=str(output),
                beam=beam,
            )
        references = (self.work / f"text/{split}.de").read_text().splitlines()
        score = BLEU(tokenize="none", force=True)
        return found, score.corpus_score(output.read_text().splitlines(), [references]).score

    def decoding(self, rounds: int) -> None:
        """Decode the test sentences with both; our model has no attention biases."""
        self.shared()
        for i, beam, system in itertools.product(range(rounds), (5, 1), ("sockeye", "fp32")):
            if self.missing(f"beam {beam}", system, 1, i):
                model = f"{'sockeye' if system == 'sockeye' else 'ours'}-shared"
                found, bleu = self.decode(system, model, "test", beam)
                first = found["steps"][0]
                last = found["steps"][-1]
                count = sum(row[2] for row in found["steps"])
                cpu, wall = ((last[column] - first[column]) / count for column in (0, 1))
                self.keep(
                    f"beam {beam}",
                    system,
                    1,
                    i,
                    bleu=bleu,
                    cpu_seconds=cpu,
                    wall_seconds=wall,
                    peak_bytes=found["peak_bytes"],
                )

    def shared(self) -> None:
        """Train the model that is decoded, and write it for both systems, unless it is there."""
        done = self.work / "sockeye-shared" / "ours"
        if not (self.work / "ours-shared/ours-shared/export/README.md").exists():
            fixed = {"eval_sentences": 200, "checkpoint_updates": 50}
            self.train_ours(
                "ours-shared",
                self.updates,
                1,
                "fp32",
                export=True,
                resume=True,
                no_bias=True,
                fixed=fixed,
            )
            done.unlink(missing_ok=True)
        if not done.exists():
            from benchmarks.peers.sockeye_weights import write

            shutil.rmtree(self.work / "sockeye-shared", ignore_errors=True)
            self.train_theirs("sockeye-shared", 1, 1)
            write(self.work / "ours-shared/ours-shared/export", self.work / "sockeye-shared")
            done.touch()
