"""How fast the workloads are beside plain PyTorch loops, and how good they are on real data.

    python benchmarks/training/workloads.py speed [vgg gru features graph] [--accuracy] [--check]
    python benchmarks/training/workloads.py speed --quick [--check]     few trials and rounds
    python benchmarks/training/workloads.py quality WORKLOAD [KEY=VALUE ...] --data DIR

`speed` times three contestants in turn on one thread: a plain loop of each model, the workload with
its defaults, and the fastest configuration that a sweep of 12 trials found. Times are CPU seconds.
A ratio is the median over the rounds of the seconds divided by those of the plain loop.
`--accuracy` trains all three for some epochs on the same data. `--out FILE` stores every piece, so
that an interrupted run can be continued. `--data DIR` names the folder with cifar10/, imdb/ and
kg/FB15k-237/; without it the data are generated.

A default must be at most 1.05 times slower than its loop, and a best configuration at least 1.3
times faster and at most 0.02 less accurate. Graph embedding must be at least twice as fast.

`quality` runs trial 0, changed by settings. It prints each report, the end, and the longest time
between two checks for a request to stop.
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

from benchmarks.common.bounds import Claim, conclude
from benchmarks.common.options import CHECK, parser
from benchmarks.common.paired import cpu_clock
from benchmarks.common.store import processor
from benchmarks.training.contests import CONTESTS, REAL
from benchmarks.training.races import Book, compete
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads import WORKLOADS


def speed(given: argparse.Namespace) -> int:
    from workers.workloads import feature_extraction
    from workers.workloads.graph_embedding import trainer

    counts = (4, 2) if given.quick else (12, 9)
    setting = {"torch": torch.__version__, "threads": 1, "cpu": processor(), "quick": given.quick}
    book = Book(given.out, {**setting, "real": given.data is not None})
    claims: list[Claim] = []
    with cpu_clock(feature_extraction, trainer):
        for name in given.which or CONTESTS:
            contest = CONTESTS[name](8 if given.quick else 20, given.data)
            claims += compete(name, contest, counts, given.accuracy, book)
    return conclude(claims) if given.check else 0


class StopChecks:
    """Replaces the check for a request to stop; notes the longest time between two checks.

    A thread notes which code runs in the middle of that time.
    """

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.longest = self.at = 0.0
        self.where = self._seen = ""
        self._main = threading.get_ident()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.last > self.longest:
            self.longest = now - self.last
            self.at = self.last - self.begun
            self.where = self._seen
        self.last = now
        self._seen = ""

    def _watch(self) -> None:
        while True:
            time.sleep(0.05)
            if time.monotonic() - self.last > self.longest / 2 and not self._seen:
                stack = traceback.extract_stack(sys._current_frames()[self._main])
                self._seen = " < ".join(
                    f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in stack[:-6:-1]
                )


def quality(name: str, folder: Path, settings: Mapping[str, Any], seed: int) -> int:
    """Run trial 0, changed by settings, on real data."""
    kind = WORKLOADS.get(name)
    checks = StopChecks()
    section = {"name": REAL[name][0], "dir": str(folder)}
    kind.check(section, settings)
    with tempfile.TemporaryDirectory() as place:
        one = Assignment("quality", 0, 1, {}, name, place, section, dict(settings), seed=seed)
        context = Context(
            one, lambda report: print(report.step, dict(report.metrics), flush=True), checks
        )
        outcome = run(context)
    found = {
        "ending": outcome.ending,
        "message": outcome.message,
        "metrics": dict(outcome.metrics),
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "seconds": outcome.seconds,
        "longest_without_a_check": checks.longest,
        "which_began_after": checks.at,
        "and_was_in": checks.where,
        "details": dict(outcome.details),
    }
    print(json.dumps(found))
    return int(outcome.failure is not None)


def main() -> int:
    options = parser(__doc__)
    commands = options.add_subparsers(dest="command", required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("which", nargs="*", metavar="WHICH", help=", ".join(CONTESTS))
    fast.add_argument(
        "--quick", action="store_true", help="few trials and rounds; times are less sure"
    )
    fast.add_argument("--check", action="store_true", help=CHECK)
    fast.add_argument("--accuracy", action="store_true", help="compare test accuracies, too")
    fast.add_argument("--data", type=Path, help="folder of the real data sets")
    fast.add_argument(
        "--out", type=Path, help="JSON file of the results, from which a run continues"
    )
    real = commands.add_parser("quality")
    real.add_argument("workload", choices=list(REAL))
    real.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    real.add_argument("--data", type=Path, required=True, help="folder of that data set")
    real.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    torch.set_num_threads(1)
    print("$", " ".join(["python", "benchmarks/training/workloads.py", *sys.argv[1:]]), flush=True)
    if given.command == "speed":
        unknown = set(given.which) - set(CONTESTS)
        if unknown:
            options.error(f"unknown contest {min(unknown)!r}; choose from {', '.join(CONTESTS)}")
        return speed(given)
    pairs = [text.split("=", 1) for text in given.settings]
    return quality(
        given.workload, given.data, {key: json.loads(value) for key, value in pairs}, given.seed
    )


if __name__ == "__main__":
    raise SystemExit(main())
