"""How fast the workloads are beside plain PyTorch loops, and how good they are on real data.

    python benchmarks/training/workloads.py speed [vgg gru features graph] [--check]
    python benchmarks/training/workloads.py speed --quick [--check]     few trials and rounds
    python benchmarks/training/workloads.py quality WORKLOAD [KEY=VALUE ...] --data DIR

`speed` times three contestants in turn on one thread: a plain loop of each model, the workload with
its defaults, and the fastest configuration that a sweep of 12 trials found. Times are CPU seconds.
A ratio is the median over the rounds of the seconds divided by those of the plain loop.
`--data DIR` names the folder with cifar10/, imdb/ and kg/FB15k-237/; without it the data are
generated.

A default must be at most 1.05 times slower than its loop, and a best configuration at least 1.3
times faster. Graph embedding must be at least twice as fast.

`quality` runs trial 0, changed by settings, and prints each report and the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.bounds import Claim, conclude
from benchmarks.common.options import CHECK, parser
from benchmarks.common.paired import cpu_clock
from benchmarks.training.contests import CONTESTS, REAL
from benchmarks.training.races import compete
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.training import trainer as training
from workers.workloads import WORKLOADS


def speed(given: argparse.Namespace) -> int:
    from workers.workloads.feature_extraction import extractor
    from workers.workloads.graph_embedding import trainer

    counts = (4, 2) if given.quick else (12, 9)
    claims: list[Claim] = []
    with cpu_clock(training, extractor, trainer):
        for name in given.which or CONTESTS:
            contest = CONTESTS[name](8 if given.quick else 20, given.data)
            claims += compete(contest, *counts)
    return conclude(claims) if given.check else 0


def quality(name: str, folder: Path, settings: Mapping[str, Any], seed: int) -> int:
    """Run trial 0, changed by settings, on real data."""
    kind = WORKLOADS.get(name)
    section = {"name": REAL[name][0], "dir": str(folder)}
    kind.check(section, settings)
    with tempfile.TemporaryDirectory() as place:
        one = Assignment("quality", 0, 1, {}, name, place, section, dict(settings), seed=seed)
        outcome = run(
            Context(one, lambda report: print(report.step, dict(report.metrics), flush=True))
        )
    found = {
        "ending": outcome.ending,
        "message": outcome.message,
        "metrics": dict(outcome.metrics),
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "seconds": outcome.seconds,
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
    fast.add_argument("--data", type=Path, help="folder of the real data sets")
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
