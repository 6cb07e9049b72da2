"""What it costs to run a training as a command, and what a stopper saves for any training.

    python benchmarks/any_training.py [--repeats N]        measure and store the missing rows
    python benchmarks/any_training.py --quick [--check]    fewer rounds; regret beside stored rows
    python benchmarks/any_training.py --table [--check]    the stored rows

- overhead: seconds of a trial of the program `true` beyond those of the program alone, and the
  memory of the process between worker and command.
- latency: seconds from the moment at which a command reports until the controller has the report,
  by output and by file, on the dispatcher `local`; the largest of all reports.
- regret: how far the best loss is above the best of all runs, after a number of epochs of all
  trials together. A small network (`training/small_network.py`) is trained as a workload, as a
  function and as a command, with `curve` and with `none`, beside Optuna's TPE with Hyperband.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import automl
from automl.core import Trial
from automl.stopping.base import CONTINUE, Decision, Stopper
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.paired import interleaved
from benchmarks.training import small_network_regret as regret
from workers.command import CommandObjective
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run

ROWS: Final = store.RESULTS / "any_training.jsonl"
OVERHEAD_SECONDS: Final = 0.15
LATENCY_SECONDS: Final = 0.5
BY_OUTPUT: Final = """
import sys, time
for step in range(int(sys.argv[1])):
    print("step", step, "at", repr(time.time()), flush=True)
    time.sleep(0.1)
"""
BY_FILE: Final = """
import os, sys, time
for step in range(int(sys.argv[1])):
    with open(os.environ["AUTOML_REPORTS"], "a") as file:
        file.write('{"step": %d, "at": %r}\\n' % (step, time.time()))
    time.sleep(0.1)
"""


class NotedLatency(Stopper):
    """Stops nothing; `latencies` are the seconds from a report until it is observed."""

    name = "noted_latency"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.latencies: list[float] = []
        self._seen: dict[int, int] = {}

    def observe(self, trial: Trial) -> None:
        """Note the age of each new report."""
        for report in trial.reports[self._seen.get(trial.number, 0) :]:
            self.latencies.append(time.time() - report.metrics["at"])
        self._seen[trial.number] = len(trial.reports)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Let every trial go on."""
        return CONTINUE


def trial_seconds(folder: str) -> float:
    """Wall seconds of an attempt that runs `true`."""
    assignment = Assignment("overhead", 0, 1, {}, None, folder)
    began = time.perf_counter()
    outcome = run(Context(assignment), CommandObjective(("true",)))
    assert outcome.ending == "completed", outcome.message
    return time.perf_counter() - began


def program_seconds() -> float:
    """Wall seconds of `true` alone."""
    began = time.perf_counter()
    subprocess.run(["true"], check=True)
    return time.perf_counter() - began


def overhead(rounds: int) -> list[store.Row]:
    """The overhead of a trial."""
    with tempfile.TemporaryDirectory() as folder:
        trial_seconds(folder)  # imports
        gc.collect()
        gc.freeze()  # as a worker does
        contestants = {"trial": partial(trial_seconds, folder), "program": program_seconds}
        taken = interleaved(contestants, rounds)
    seconds = [a - b for a, b in zip(taken["trial"], taken["program"], strict=True)]
    return [
        {
            "measure": "overhead",
            "contestant": "command",
            "seconds": round(statistics.median(seconds), 4),
            "rounds": rounds,
        }
    ]


def latency(contestant: str, script: str, reports: dict[str, str], steps: int) -> list[store.Row]:
    """The age of reports when the controller gets them."""
    stopper = NotedLatency(())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "script.py").write_text(script)
        arguments = (sys.executable, "-S", "script.py", str(steps))
        command = CommandObjective(arguments, reports=reports, folder=folder, goal="at")
        automl.sweep(
            command,
            {"x": (0.0, 1.0)},
            "minimize at",
            trials=2,
            workers=1,
            suggester="random",
            stopper=stopper,
            dispatcher="local",
            store=f"{folder}/store",
            progress=False,
        )
    assert len(stopper.latencies) >= 2 * steps
    return [
        {
            "measure": "latency",
            "contestant": contestant,
            "median": round(statistics.median(stopper.latencies), 4),
            "largest": round(max(stopper.latencies), 4),
            "reports": len(stopper.latencies),
        }
    ]


def claims(rows: dict[tuple[Any, ...], store.Row]) -> list[Claim]:
    """Every limit beside what was measured."""

    def value(measure: str, contestant: str, key: str) -> float | None:
        return rows.get((measure, contestant), {}).get(key)

    made = [
        at_most(
            "overhead of a trial, s", value("overhead", "command", "seconds"), OVERHEAD_SECONDS
        ),
    ]
    for contestant in ("output", "file"):
        largest = value("latency", contestant, "largest")
        made.append(at_most(f"report by {contestant} seen after, s", largest, LATENCY_SECONDS))
    return made


def main() -> int:
    """Measure, store and print the rows."""
    parser = benchmark_parser(__doc__, "20 rounds, 20 reports, two seeds")
    parser.add_argument("--repeats", type=int, default=100, help="rounds and reports")
    parser.add_argument("--only", choices=["cost", "regret"], help="one half; default: both")
    given = parser.parse_args()
    found = []
    if given.only != "regret":
        found += _cost(given)
    if given.only != "cost":
        found += _regret(given)
    return conclude(found) if given.check else 0


def _cost(given: argparse.Namespace) -> list[Claim]:
    """Measure overhead and latency, or read their rows; returns the claims."""
    rows = store.load(ROWS, "measure", "contestant") if given.table else {}
    repeats = 20 if given.quick else given.repeats
    patterns = {"at": r"at (\S+)", "step": r"step (\d+)"}
    measures = [
        partial(overhead, repeats),
        partial(latency, "output", BY_OUTPUT, patterns, repeats),
        partial(latency, "file", BY_FILE, {}, repeats),
    ]
    for measure in [] if given.table else measures:
        for row in measure():
            rows[row["measure"], row["contestant"]] = row
            if not given.quick:
                store.append(ROWS, row)
            print(row, flush=True)
    if given.table:
        print("\n".join(map(str, rows.values())))
    return claims(rows)


def _regret(given: argparse.Namespace) -> list[Claim]:
    """Measure regret, or read its rows; returns the claims."""
    quick = regret.measure_quickly() if given.quick else []
    if not given.quick and not given.table:
        regret.measure_missing()
    runs = regret.load()
    print(regret.table(runs))
    return regret.quick_claims(runs, quick) if given.quick else regret.claims(runs)


if __name__ == "__main__":
    sys.exit(main())
