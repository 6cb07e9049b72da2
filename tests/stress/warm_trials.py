"""Many trials in one warm worker, with other knobs each time, beside fresh processes.

    python tests/stress/warm_trials.py            1,000 trials of 100 settings, about half an hour
    python tests/stress/warm_trials.py --quick    30 trials of 3 settings, about a minute

Every setting is trained once in a process of its own. The losses in the warm worker must be the
same, bit for bit, each time. The worker must stay the same process, and hold at most 50 MB more at
the end than after its first 50 trials (5 with --quick). Compilation is left out: one takes a
minute. The status is 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from search_spaces.hardware import detect
from workers.protocol import Assignment, Outcome, Report, Started
from workers.runtime.gang import Gang
from workers.runtime.process_worker import News
from workers.runtime.processes import ObjectiveFile, WorkerProcess, receive_all
from workers.workloads import WORKLOADS

NAMES = ("image_classification", "sentiment", "translation")
UNCOMPILED = {"compile": "off"}
MAX_BYTES = 50_000_000
# What only a configuration adds, some of it to each setting of any of these workloads.
NAMED: tuple[Mapping[str, Any], ...] = (
    {},
    {"deterministic": True},
    {"optimizer": "adafactor"},
    {"optimizer": "muon"},
    {"compact_memory": True},
    {"loader_workers": 1, "prefetch": 4},
    {"threads": 2},
    {"precision": "fp64"},
)
Losses = list[tuple[int, dict[str, float]]]


def settings(count: int) -> list[tuple[str, dict[str, Any]]]:
    """Workloads and parameters, of the workloads in turn."""
    hardware = detect()
    rng = np.random.default_rng(11)
    found = []
    drawn = {}
    for name in NAMES:
        kind = WORKLOADS.get(name)
        drawn[name] = iter(kind.space(hardware).sample(rng, count))
    for index in range(count):
        name = NAMES[index % len(NAMES)]
        fixed = WORKLOADS.get(name).smallest["fixed"]
        params = {**next(drawn[name]), **NAMED[index // len(NAMES) % len(NAMED)], **UNCOMPILED}
        params |= {"parallelism": "single"}
        found.append((name, {key: value for key, value in params.items() if key not in fixed}))
    return found


class OneWorker:
    """A warm worker; a new one takes its place if it is spent."""

    def __init__(self) -> None:
        self.file = ObjectiveFile(None)
        self.pid = 0
        self.worker = self._new()

    def _new(self) -> WorkerProcess:
        return WorkerProcess("warm", self.file, None, 1, {})

    def run(self, folder: Path, name: str, params: Mapping[str, Any]) -> tuple[Outcome, Losses]:
        smallest = WORKLOADS.get(name).smallest
        fixed = {**smallest["fixed"], "max_updates": 3, "evaluate_updates": 1, "max_epochs": 4}
        one = Assignment(
            "s", 0, 1, params, name, str(folder), smallest.get("data", {}), fixed, seed=3
        )
        gang = Gang(one, [self.worker])
        losses: Losses = []
        while gang.outcome is None:
            for _, message in receive_all([self.worker], 0.1):
                events: Any = ()
                if message is None:
                    events = gang.lose(0, self.worker.death())
                elif isinstance(message, News):
                    events = gang.receive(0, message.events, message.heartbeat)
                for event in events:
                    if isinstance(event, Started):
                        self.pid = int(event.worker.rpartition(":")[2])
                    if isinstance(event, Report):
                        losses.append((event.step, learned(event.metrics, name)))
            gang.watch()
        if gang.spent:
            self.close()
            self.worker = self._new()
        return gang.outcome, losses

    def resident(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def close(self) -> None:
        self.worker.kill()


def learned(metrics: Mapping[str, float], name: str) -> dict[str, float]:
    """The metrics that depend on what was learned, not on the time that it took."""
    about = {m.name: m.aspect for m in WORKLOADS.get(name).metrics}
    return {key: value for key, value in metrics.items() if about.get(key) == "quality"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trials", type=int)
    options = parser.parse_args()
    trials = options.trials or (30 if options.quick else 1000)
    early = 5 if options.quick else 50
    known = settings(3 if options.quick else 100)
    problems: list[str] = []

    def note(problem: str) -> None:
        print(problem, flush=True)  # at once: the run may be ended before its end
        problems.append(problem)

    folder = Path(tempfile.mkdtemp())
    expected = []
    for index, (name, params) in enumerate(known):
        fresh = OneWorker()
        outcome, losses = fresh.run(folder / f"fresh-{index}", name, params)
        fresh.close()
        expected.append(losses)
        if outcome.failure or not losses:
            note(f"alone: {name} {params}: {outcome.failure}: {outcome.message}")
    print(f"{len(known)} settings alone, {len(problems)} problems", flush=True)
    order = [index % len(known) for index in range(trials)]
    random.Random(5).shuffle(order)
    worker, begun, first, pids = OneWorker(), time.monotonic(), 0, set()
    for count, index in enumerate(order, 1):
        name, params = known[index]
        outcome, losses = worker.run(folder / "warm" / str(count), name, params)
        pids.add(worker.pid)
        if outcome.failure or losses != expected[index]:
            note(f"trial {count}: {name} {params}: {outcome.message or 'other losses'}")
        if outcome.worker_spent:
            note(f"trial {count}: {name} {params}: {outcome.details['left_behind']}")
        if count in (early, trials) or count % 100 == 0:
            print(f"{count} trials, {worker.resident() / 1e6:.0f} MB", flush=True)
        if count == early:
            first = worker.resident()
    grown = worker.resident() - first
    worker.close()
    if len(pids) > 1:
        note(f"{len(pids)} processes")
    if grown > MAX_BYTES:
        note(f"{grown / 1e6:.0f} MB more than after {early} trials")
    seconds = time.monotonic() - begun
    print(
        f"{trials} trials of {len(known)} settings in {seconds:.0f} s, in {len(pids)} process, "
        f"{grown / 1e6:.1f} MB more than after {early}: {'FAILED' if problems else 'ok'}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
