"""Our translation workload beside Sockeye 3: training, quality, decoding, memory, start, in paired runs on one text.

    python benchmarks/training/sockeye.py --data DIR [--quick] [what ...]     what: speed quality decoding overhead padding
    python benchmarks/training/sockeye.py --check                             exit status 1 where a kept result misses its bound

DIR holds Multi30k, English to German; it is lower-cased and split into words and marks. Both sides train 2+2 layers of
width 256, 4 heads, 1,024 hidden units on batches of 2,048 target words with a shared vocabulary of 8,000 words and the
same schedule, on `--threads` threads. Sockeye runs in an environment of its own under benchmarks/.envs. Speed is in CPU
seconds, of runs that take turns; the ratio of each pair counts, and the table has their median. Rows are kept in
benchmarks/results/sockeye.jsonl, and what is there for a seed and round is not run again; the table beside them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.store import append, load
from benchmarks.peers.client import environment
from benchmarks.training.sockeye_table import ROWS, failed, table

HERE = Path(__file__).parents[1]
SPLITS = {"train": "train", "val": "valid", "test_2016_flickr": "test"}
KEYS = ("what", "system", "seed", "round")
PEAK_RATE, WARMUP = 2e-3, 200
FIXED: dict[str, Any] = {
    "vocabulary_size": 8004, "vocabulary_kind": "word", "max_length": 96, "num_layers": 2, "width": 256, "num_heads": 4,
    "feed_forward_ratio": 4, "batch_tokens": 2048, "dropout": 0.1, "label_smoothing": 0.1, "learning_rate": PEAK_RATE,
    "warmup_updates": WARMUP, "evaluate_seconds": None, "checkpoint_seconds": None,
}  # fmt: skip
OURS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32", "matmul_precision": "medium"},
    "bf16": {"precision": "bf16", "matmul_precision": "medium"},
}
SIZE = """
    --num-layers 2:2 --transformer-model-size 256 --transformer-attention-heads 4
    --transformer-feed-forward-num-hidden 1024 --weight-tying-type src_trg_softmax --batch-type word --batch-size 2048
    --optimizer adam --optimizer-betas 0.9:0.98 --label-smoothing 0.1 --max-seq-len 95:95
    --learning-rate-scheduler-type inv-sqrt-decay --decode-and-evaluate 0 --use-cpu
"""
RATE = [
    "--learning-rate-warmup",
    str(WARMUP),
    "--initial-learning-rate",
    str(PEAK_RATE * math.sqrt(WARMUP)),
]
VARIANTS: dict[
    str, dict[str, Any]
] = {  # of decoding; a shortlist of so many entries for each source entry
    "sockeye": {},
    "fp32 shortlist": {"shortlist": 30},
    "bf16 shortlist": {"quantisation": "bf16", "shortlist": 30},
    "int8 shortlist": {"quantisation": "int8", "shortlist": 30},
    "ctranslate2 shortlist": {"engine": "ctranslate2", "shortlist": 30},
    "fp32": {},
    "int8": {"quantisation": "int8"},
    "ctranslate2": {"engine": "ctranslate2"},
}


class Bench:
    """Runs what is missing, in `work`."""

    def __init__(
        self, work: Path, kept: Path, threads: int, updates: int, systems: Collection[str]
    ) -> None:
        self.work, self.kept, self.threads, self.updates, self.systems = (
            work,
            kept,
            threads,
            updates,
            systems,
        )
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

    # Processes

    def sockeye(self, command: str, *options: str) -> dict[str, Any]:
        python = environment("sockeye")
        return self._run(
            [str(python), str(HERE / "peers" / "sockeye_driver.py"), command], list(options)
        )

    def ours(self, command: str, **options: Any) -> dict[str, Any]:
        driver = str(HERE / "peers" / "translation_driver.py")
        return self._run(
            [sys.executable, driver, command], [json.dumps({"threads": self.threads, **options})]
        )

    def _run(self, command: list[str], options: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            result = Path(folder) / "result.json"
            variables = {
                **os.environ,
                "OMP_NUM_THREADS": str(self.threads),
                "PYTHONPATH": str(HERE.parent),
            }
            done = subprocess.run(
                [*command, str(result), *options],
                env=variables,
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
            text = [
                "-s",
                "text/train.en",
                "-t",
                "text/train.de",
                "-o",
                "prepared",
                "--max-seq-len",
                "95:95",
            ]
            self.sockeye("prepare_data", *text, "--shared-vocab", "--num-words", "8000")
        length = [
            "--max-updates",
            str(updates),
            "--checkpoint-interval",
            "100",
            "--seed",
            str(seed),
        ]
        data = ["-d", "prepared", "-vs", "text/valid.en", "-vt", "text/valid.de", "-o", name]
        return self.sockeye("train", *data, *SIZE.split(), *RATE, *length)

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

    # Measurements

    def speed(self, rounds: int) -> None:
        """Short runs in turn; the first update is the start."""
        for i in range(rounds):
            for system in ("sockeye", *OURS):
                if self.missing("speed", system, 0, i):
                    if system == "sockeye":
                        shutil.rmtree(
                            self.work / "speed", ignore_errors=True
                        )  # else it would be gone on with
                        found = self.train_theirs("speed", self.updates, i + 1)
                    else:
                        fixed = {"eval_sentences": 8}
                        found = self.train_ours("trials", self.updates, i + 1, system, fixed=fixed)
                    steps = found["steps"]
                    count = sum(row[2] for row in steps[2:])
                    self.keep("speed", system, 0, i, updates=len(steps) - 1, peak_bytes=found["peak_bytes"],
                              cpu_seconds=(steps[-1][0] - steps[1][0]) / count, start=steps[1][0],
                              wall_seconds=(steps[-1][1] - steps[1][1]) / count)  # fmt: skip

    def quality(self, seeds: int) -> None:
        """Perplexity and BLEU (beam 5) after as many updates; the trained models are decoded for speed afterwards."""
        for seed in range(1, seeds + 1):
            for system in (*OURS, "sockeye"):
                name = f"{system}-{seed}-{self.updates}"
                if not self.missing("quality", system, seed, self.updates):
                    continue
                if system == "sockeye":
                    found = self.train_theirs(
                        name, self.updates, seed
                    )  # goes on with what is there
                    nats = self.score(name)
                else:
                    fixed = {
                        "eval_sentences": 2000,
                        "checkpoint_updates": 50,
                    }  # a killed training goes on
                    found = self.train_ours(
                        name, self.updates, seed, system, export=True, resume=True, fixed=fixed
                    )
                    nats = found["metrics"]["loss"]
                bleu = {
                    split: self.decode(system, name, split, 5)[1] for split in ("valid", "test")
                }
                self.keep("quality", system, seed, self.updates, perplexity=math.exp(nats), **bleu,
                          peak_bytes=found["peak_bytes"])  # fmt: skip

    def score(self, name: str) -> float:
        """Sockeye's cross-entropy a target token of the validation sentences, by its own scorer."""
        files = [
            "--source",
            "text/valid.en",
            "--target",
            "text/valid.de",
            "--output",
            "scores",
            "-m",
            name,
        ]
        self.sockeye("score", *files, "--score-type", "neglogprob", "--length-penalty-alpha", "0", "--use-cpu",
                     "--output-type", "score", "--max-seq-len", "200:200")  # fmt: skip
        total = sum(float(line) for line in (self.work / "scores").read_text().split())
        return total / sum(
            len(line.split()) + 1 for line in (self.work / "text/valid.de").read_text().splitlines()
        )

    def decode(
        self, system: str, name: str, split: str, beam: int, **load: Any
    ) -> tuple[dict[str, Any], float]:
        """Row of the run, and BLEU on words as they are."""
        from sacrebleu.metrics import BLEU

        source, output = self.work / f"text/{split}.en", self.work / f"{split}.output"
        if system == "sockeye":
            found = self.sockeye("translate", "-i", str(source), "-o", str(output), "-m", name, "--batch-size", "16",
                                 "--beam-size", str(beam), "--use-cpu")  # fmt: skip
        else:
            model = str(self.work / name / name / "export")
            found = self.ours(
                "translate",
                model=model,
                source=str(source),
                output=str(output),
                beam=beam,
                load=load,
            )
        references = (self.work / f"text/{split}.de").read_text().splitlines()
        bleu = (
            BLEU(tokenize="none", force=True)
            .corpus_score(output.read_text().splitlines(), [references])
            .score
        )
        return found, bleu

    def decoding(self, rounds: int) -> None:
        """The test sentences in batches of 16, by one model: ours, without biases in attention, in both forms."""
        self.shared()
        for i, beam, system in itertools.product(range(rounds), (5, 1), VARIANTS):
            if self.missing(f"beam {beam}", system, 1, i):
                model = f"{'sockeye' if system == 'sockeye' else 'ours'}-shared"
                found, bleu = self.decode(system, model, "test", beam, **VARIANTS[system])
                first, last = found["steps"][0], found["steps"][-1]
                count = sum(row[2] for row in found["steps"])
                cpu, wall = ((last[column] - first[column]) / count for column in (0, 1))
                self.keep(f"beam {beam}", system, 1, i, bleu=bleu, cpu_seconds=cpu, wall_seconds=wall,
                          peak_bytes=found["peak_bytes"])  # fmt: skip

    def shared(self) -> None:
        """Train the model that is decoded, and write it for both, where that is not done."""
        done = self.work / "sockeye-shared" / "ours"
        if not (self.work / "ours-shared/ours-shared/export/README.md").exists():
            fixed = {"eval_sentences": 200, "checkpoint_updates": 50}
            self.train_ours(
                "ours-shared",
                self.updates,
                1,
                "bf16",
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

    def overhead(self, rounds: int) -> None:
        """The trainer's loop over the same batches' bare forward, backward and step."""
        for i in range(rounds):
            if self.missing("overhead", "fp32", 0, i):
                fixed = {
                    **FIXED,
                    **OURS["fp32"],
                    "max_updates": self.updates,
                    "max_epochs": None,
                    "eval_sentences": 8,
                }
                options = {
                    "data": self.data,
                    "fixed": fixed,
                    "folder": str(self.work / "trials/0"),
                    "seed": 0,
                }
                found = self.ours("overhead", weight=2000.0, **options)
                loop, bare = (median(found[key]) for key in ("loop", "bare"))
                pairs = [a / b for a, b in zip(found["loop"], found["bare"], strict=True)]
                self.keep("overhead", "fp32", 0, i, loop=loop, bare=bare, share=median(pairs) - 1)

    def padding(self, folder: Path) -> None:
        """Share of padding in an epoch, of words as here and of subwords as a sweep has them."""
        from workers.workloads.translation import Translation
        from workers.workloads.translation.batches import padding

        words = {**FIXED, "max_length": 96}
        pieces = {"vocabulary_size": 8000, "max_length": 128}
        for label, data, fixed in (
            ("words", self.data, words),
            ("pieces", multi30k(folder), pieces),
        ):
            for size in (2048, 8192):
                workload = Translation({}, data, {**fixed, "batch_tokens": size})
                share = padding(list(workload.train_batches(0)))
                self.keep("padding", f"{label}, {size} a batch", 0, 0, share=share)


def multi30k(folder: Path) -> dict[str, str]:
    return {"name": "multi30k", "dir": str(folder.resolve())}


def prepare(folder: Path, text: Path) -> None:
    """Lower-cased words and marks, blanks between them."""
    text.mkdir(parents=True, exist_ok=True)
    for stem, split in SPLITS.items():
        for language in ("en", "de"):
            packed = folder / f"{stem}.{language}.gz"
            raw = (
                gzip.decompress(packed.read_bytes())
                if packed.exists()
                else (folder / packed.stem).read_bytes()
            )
            lines = raw.decode().lower().removesuffix("\n").split("\n")
            words = [" ".join(re.findall(r"\w+|[^\w\s]", line)) for line in lines]
            (text / f"{split}.{language}").write_text("".join(line + "\n" for line in words))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", default=["speed", "overhead", "padding", "quality", "decoding"]
    )
    parser.add_argument(
        "--data", type=Path, default=HERE.parents[1] / "shared" / "data" / "multi30k"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=HERE / ".envs" / "sockeye-work",
        help="folder of text and models",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--systems", nargs="*", default=[], help="only those, to run a part (sockeye fp32 bf16 ...)"
    )
    parser.add_argument(
        "--updates", type=int, default=600, help="of a training whose quality is judged"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round and one seed of few updates"
    )
    parser.add_argument("--check", action="store_true", help="run nothing; check what is kept")
    given = parser.parse_args()
    work = given.work.resolve()
    kept = work / "quick.jsonl" if given.quick else ROWS
    if not given.check:
        prepare(given.data, work / "text")
        rounds, seeds, updates = (
            (1, 1, 60) if given.quick else (given.rounds, given.seeds, given.updates)
        )
        short = Bench(work, kept, given.threads, 12 if given.quick else 40, given.systems)
        long = Bench(work, kept, given.threads, updates, given.systems)
        jobs = {
            "speed": lambda: short.speed(rounds),
            "overhead": lambda: short.overhead(rounds),
            "padding": lambda: short.padding(given.data),
            "quality": lambda: long.quality(seeds),
            "decoding": lambda: long.decoding(rounds),
        }
        for what in given.what:
            jobs[what]()
    text = table(load(kept, *KEYS))
    print(text)
    if not given.quick:
        ROWS.with_suffix(".txt").write_text(text + "\n")
    if given.check and failed(load(kept, *KEYS)):
        sys.exit(1)


if __name__ == "__main__":
    main()
