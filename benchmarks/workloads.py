"""How fast the workloads are beside plain PyTorch loops, and how good they are on real data.

    python benchmarks/workloads.py speed [vgg gru features graph] [--quick] [--check] [--data DIR] [--accuracy]
    python benchmarks/workloads.py quality WORKLOAD [KEY=VALUE ...] --data DIR

`speed` times a plain hand-written loop of each model, the workload as it is by default, and the fastest that a
12-trial sweep over its knobs of speed found, in turn on one thread. Times are CPU seconds of the process: other work
on the machine disturbs them least. A ratio is the median over the rounds of one's time by the plain loop's in the same
round. `--accuracy` trains the plain loop, the default and the best found to the end on the same data. `--check` ends
with status 1 where a default is more than 1.05 times slower than its loop, a best less than 1.3 times faster, or graph
embedding less than 2 times. DIR holds cifar10/, imdb/ and kg/FB15k-237/; without it the data are generated.

`quality` runs trial 0, changed by settings, prints each report, the end, and the longest time that a request to end
would have waited.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import automl
from benchmarks.contests import CONTESTS, REAL, Contest
from benchmarks.paired import cpu_clock, interleaved, ratios
from workers import limits
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads import WORKLOADS


def sweep(contest: Contest, trials: int) -> dict[str, Any]:
    """The fastest configuration that the default suggester found."""
    optimizer = automl.Optimizer(contest.space(), "minimize seconds_each", contest.constraints, seed=0)
    for number in range(trials):
        trial = optimizer.ask()
        outcome = contest.attempt(trial.params, contest.fixed, contest.train_seconds)
        if outcome.failure:
            optimizer.fail(trial, outcome.failure)
            print(f"  trial {number}: {outcome.failure} {outcome.message} {dict(trial.params)}", flush=True)
            continue
        taken = contest.seconds(outcome.metrics)
        optimizer.tell(trial, {**outcome.metrics, "seconds_each": taken})
        print(f"  trial {number}: {taken:.5g} {dict(trial.params)}", flush=True)
    best = optimizer.best
    return dict(best.params) if best else {}


def compete(contest: Contest, trials: int, rounds: int, accuracy: bool) -> dict[str, Any]:
    """Sweep, race and judge; returns what was found."""
    print(f"\n{contest.title}, CPU {contest.unit}", flush=True)
    found = sweep(contest, trials)
    racers = {"plain": contest.plain, "default": contest.ours({}), "best": contest.ours(found)}
    taken = interleaved(racers, rounds)
    ratio = ratios(taken, "plain")
    for name, seconds in taken.items():
        print(f"  {name:8s} {min(seconds):10.5g} at best, ratio to plain {ratio[name]:.3f}", flush=True)
    print(f"  best: {found}")
    result = {"title": contest.title, "unit": contest.unit, "taken": taken, "ratio": ratio, "best": found}
    result["fulfilled"] = ratio["default"] <= contest.default_bound and ratio["best"] <= contest.best_bound
    if accuracy and contest.accuracy:
        ours = {name: contest.metrics(params, contest.whole) for name, params in (("default", {}), ("best", found))}
        reached = {"plain": contest.accuracy(), **{name: metrics["accuracy"] for name, metrics in ours.items()}}
        print(f"  test accuracy: {reached}", flush=True)
        result["accuracy"] = reached
    return result


def speed(given: argparse.Namespace) -> int:
    from workers.workloads import feature_extraction
    from workers.workloads.graph_embedding import trainer

    results = []
    with cpu_clock(limits, feature_extraction, trainer):
        for name in given.which or CONTESTS:
            contest = CONTESTS[name](8 if given.quick else 20, given.data)
            found = compete(contest, 4 if given.quick else 12, 2 if given.quick else 5, given.accuracy)
            results.append(found)
    if given.out:
        machine = {"torch": torch.__version__, "threads": 1, "cpu": cpu_name()}
        given.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    failed = [found["title"] for found in results if not found["fulfilled"]]
    print("\n" + (f"beyond the bounds: {'; '.join(failed)}" if failed else "all within the bounds"))
    return int(bool(failed) and given.check)


def cpu_name() -> str:
    """What the system calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


class Looks:
    """Stands for `halted`, and keeps the longest time between two looks."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.longest = self.at = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.last > self.longest:
            self.longest, self.at = now - self.last, self.last - self.begun
        self.last = now


def quality(name: str, folder: Path, settings: Mapping[str, Any], seed: int) -> int:
    """Trial 0, changed by settings, on real data."""
    kind, looks = WORKLOADS.get(name), Looks()
    section = {"name": REAL[name][0], "dir": str(folder)}
    kind.check(section, settings)
    with tempfile.TemporaryDirectory() as place:
        one = Assignment("quality", 0, 1, {}, name, place, section, dict(settings), seed=seed)
        context = Context(one, lambda report: print(report.step, dict(report.metrics), flush=True), looks)
        outcome = run(context)
    print(json.dumps({"ending": outcome.ending, "message": outcome.message, "metrics": dict(outcome.metrics),
                      "peak_memory_bytes": outcome.peak_memory_bytes, "seconds": outcome.seconds,
                      "longest_without_a_look": looks.longest, "which_began_after": looks.at,
                      "details": dict(outcome.details)}))  # fmt: skip
    return int(outcome.failure is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("which", nargs="*", metavar="WHICH", help=", ".join(CONTESTS))
    fast.add_argument("--quick", action="store_true", help="few trials and rounds: whether it runs, not how fast")
    fast.add_argument("--check", action="store_true", help="status 1 where a bound is not kept")
    fast.add_argument("--accuracy", action="store_true", help="train plain loop, default and best to the end too")
    fast.add_argument("--data", type=Path, help="folder of the real data sets")
    fast.add_argument("--out", type=Path, help="write every time as JSON")
    real = commands.add_parser("quality")
    real.add_argument("workload", choices=list(REAL))
    real.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    real.add_argument("--data", type=Path, required=True, help="folder of that data set")
    real.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("$", " ".join(["python", "benchmarks/workloads.py", *sys.argv[1:]]), flush=True)
    if given.command == "speed":
        unknown = set(given.which) - set(CONTESTS)
        if unknown:
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CONTESTS)}")
        return speed(given)
    pairs = [text.split("=", 1) for text in given.settings]
    return quality(given.workload, given.data, {key: json.loads(value) for key, value in pairs}, given.seed)


if __name__ == "__main__":
    raise SystemExit(main())
