"""Trains every point of the grids of problems/recorded.py on one thread.

python benchmarks/suggesters/record_trainings.py [NAME ...] [--minutes N]

An interrupted run continues with the next missing point.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import tempfile
import time
from typing import Any

from benchmarks.suggesters.problems.recorded import FOLDER, Recording, recordings
from search_spaces.sampling import enumerate_legal
from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run


def train(recording: Recording, params: dict[str, Any]) -> dict[str, Any]:
    """Train one point; a row of metrics, curve of the goal, seconds, peak memory and failure."""
    metric = recording.goal.split()[1]
    reports = list[Report]()
    with tempfile.TemporaryDirectory() as folder:
        assignment = Assignment(
            recording.name,
            0,
            1,
            params,
            recording.workload,
            folder,
            data=recording.data,
            fixed=recording.fixed,
        )
        outcome = run(Context(assignment, send=reports.append))
    curve = [
        [r.step, round(r.seconds, 4), round(r.metrics[metric], 6)]
        for r in reports
        if metric in r.metrics
    ]
    last = dict(reports[-1].metrics) if reports else {}
    metrics = {key: float(f"{value:.6g}") for key, value in {**last, **outcome.metrics}.items()}
    return {
        "params": params,
        "metrics": metrics,
        "failure": outcome.failure,
        "seconds": round(outcome.seconds, 3),
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--points", type=int, default=None, help="stop after this number of points")
    options = parser.parse_args()
    started = time.perf_counter()
    done = 0
    FOLDER.mkdir(exist_ok=True)
    for recording in recordings():
        if options.names and recording.name not in options.names:
            continue
        known = recording.rows()
        for params, _ in enumerate_legal(recording.space) or ():
            if recording.space.key(params) in known:
                continue
            if time.perf_counter() - started > 60 * options.minutes or done == options.points:
                return
            row = train(recording, dict(params))
            with recording.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            done += 1
            came = row["failure"] or row["metrics"]
            print(f"{recording.name} {done} {row['seconds']} s {came}", flush=True)


if __name__ == "__main__":
    main()
