"""How fast the workloads are beside plain PyTorch loops, and how good they are on real data.

    python benchmarks/training/workloads.py speed [vgg gru features graph] [--quick] [--check] [--data DIR] [--accuracy]
    python benchmarks/training/workloads.py quality WORKLOAD [KEY=VALUE ...] --data DIR

`speed` times a plain hand-written loop of each model, the workload as it is by default, and the fastest that a
12-trial sweep over its knobs of speed found, in turn on one thread. Times are CPU seconds of the process: other work
on the machine disturbs them least. A ratio is the median over the rounds of one's time by the plain loop's in the same
round. `--accuracy` trains the plain loop, the default and the best found for some epochs on the same data. `--out`
keeps every piece, so that a run which was ended goes on from there. `--check` ends with status 1 where a default is
more than 1.05 times slower than its loop, a best less than 1.3 times faster or 0.02 less accurate, or graph embedding
less than 2 times faster. DIR holds cifar10/, imdb/ and kg/FB15k-237/; without it the data are generated.

`quality` runs trial 0, changed by settings, prints each report, the end, and the longest time that a request to end
would have waited.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.paired import cpu_clock
from benchmarks.training.contests import CONTESTS, REAL
from benchmarks.training.races import Book, compete
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.training import clock as limits
from workers.workloads import WORKLOADS


def speed(given: argparse.Namespace) -> int:
    from workers.workloads import feature_extraction
    from workers.workloads.graph_embedding import trainer

    counts = (4, 2) if given.quick else (12, 9)
    setting = {"torch": torch.__version__, "threads": 1, "cpu": cpu_name(), "quick": given.quick}
    book, within = Book(given.out, {**setting, "real": given.data is not None}), {}
    with cpu_clock(limits, feature_extraction, trainer):
        for name in given.which or CONTESTS:
            contest = CONTESTS[name](8 if given.quick else 20, given.data)
            within[contest.title] = compete(name, contest, counts, given.accuracy, book)
    failed = [title for title, kept in within.items() if not kept]
    print("\n" + (f"beyond the bounds: {'; '.join(failed)}" if failed else "all within the bounds"))
    return int(bool(failed) and given.check)


def cpu_name() -> str:
    """What the system calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"
    )


class Looks:
    """Stands for `stop_requested`; keeps the longest time between two looks, and where the work was in the middle of it."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.longest = self.at = 0.0
        self.where = self._seen = ""
        self._main = threading.get_ident()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.last > self.longest:
            self.longest, self.at, self.where = now - self.last, self.last - self.begun, self._seen
        self.last, self._seen = now, ""

    def _watch(self) -> None:
        while True:
            time.sleep(0.05)
            if time.monotonic() - self.last > self.longest / 2 and not self._seen:
                stack = traceback.extract_stack(sys._current_frames()[self._main])
                self._seen = " < ".join(
                    f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in stack[:-6:-1]
                )


def quality(name: str, folder: Path, settings: Mapping[str, Any], seed: int) -> int:
    """Trial 0, changed by settings, on real data."""
    kind, looks = WORKLOADS.get(name), Looks()
    section = {"name": REAL[name][0], "dir": str(folder)}
    kind.check(section, settings)
    with tempfile.TemporaryDirectory() as place:
        one = Assignment("quality", 0, 1, {}, name, place, section, dict(settings), seed=seed)
        context = Context(
            one, lambda report: print(report.step, dict(report.metrics), flush=True), looks
        )
        outcome = run(context)
    print(json.dumps({"ending": outcome.ending, "message": outcome.message, "metrics": dict(outcome.metrics),
                      "peak_memory_bytes": outcome.peak_memory_bytes, "seconds": outcome.seconds,
                      "longest_without_a_look": looks.longest, "which_began_after": looks.at, "and_was_at": looks.where,
                      "details": dict(outcome.details)}))  # fmt: skip
    return int(outcome.failure is not None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("which", nargs="*", metavar="WHICH", help=", ".join(CONTESTS))
    fast.add_argument(
        "--quick", action="store_true", help="few trials and rounds: whether it runs, not how fast"
    )
    fast.add_argument("--check", action="store_true", help="status 1 where a bound is not kept")
    fast.add_argument(
        "--accuracy", action="store_true", help="train plain loop, default and best to the end too"
    )
    fast.add_argument("--data", type=Path, help="folder of the real data sets")
    fast.add_argument(
        "--out", type=Path, help="JSON file of every piece; a run that was ended goes on from it"
    )
    real = commands.add_parser("quality")
    real.add_argument("workload", choices=list(REAL))
    real.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    real.add_argument("--data", type=Path, required=True, help="folder of that data set")
    real.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("$", " ".join(["python", "benchmarks/training/workloads.py", *sys.argv[1:]]), flush=True)
    if given.command == "speed":
        unknown = set(given.which) - set(CONTESTS)
        if unknown:
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CONTESTS)}")
        return speed(given)
    pairs = [text.split("=", 1) for text in given.settings]
    return quality(
        given.workload, given.data, {key: json.loads(value) for key, value in pairs}, given.seed
    )


if __name__ == "__main__":
    raise SystemExit(main())
