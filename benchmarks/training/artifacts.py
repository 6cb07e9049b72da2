"""What does it cost a training that its checkpoints are uploaded beside it?

    python benchmarks/training/artifacts.py [--rounds N]        measure and store the rows
    python benchmarks/training/artifacts.py --quick [--check]   three rounds
    python benchmarks/training/artifacts.py --table [--check]   the stored rows

A trial computes products of matrices on one thread and saves 16 MB about once a second. It runs
without artifacts, with a folder as their place, and with an S3 server (moto's, in a process of its
own on this machine, so that it takes a core that a server elsewhere would not take). The rounds are
interleaved. "training" is the time until the last update; "end" is how long the attempt then waits
for its last upload.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.paired import interleaved, ratios
from workers.context import Context
from workers.protocol import Assignment, Ending
from workers.run import run

ROWS = store.RESULTS / "artifacts.jsonl"
PLACES = ("none", "folder", "s3")
MEGABYTES = 16
SAVES = 4
UPDATES = 800  # between two of them: about a second
MAX_RATIO = 1.2  # times the training without artifacts


def training(context: Context, seconds: list[float]) -> dict[str, float]:
    """Compute and save; appends the seconds of the whole loop."""
    state = np.random.default_rng(0).random(MEGABYTES * 2**20 // 8)
    matrix = np.random.default_rng(1).random((384, 384))
    begun = time.perf_counter()
    for save in range(SAVES):
        for _ in range(UPDATES):
            matrix = matrix @ matrix
            matrix /= np.abs(matrix).max()
        context.save({"save": save, "state": state + save})
    seconds.append(time.perf_counter() - begun)
    return {"loss": 1.0}


def attempt(place: str, waited: list[float]) -> float:
    """Seconds of the training of one trial; its wait at the end is added to `waited`."""
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        location = {"none": "", "folder": f"{folder}/kept"}.get(place, place)
        location = f"{location}/{time.time_ns()}" if location else ""
        one = Assignment("bench", 0, 1, {}, None, f"{folder}/trial", artifacts=location)
        begun = time.perf_counter()
        outcome = run(Context(one), partial(training, seconds=seconds))
        if outcome.ending is not Ending.COMPLETED or outcome.message:
            raise SystemExit(f"{place}: {outcome.message}")
        waited.append(time.perf_counter() - begun - seconds[0])
    return seconds[0]


@contextlib.contextmanager
def server() -> Iterator[str]:
    """An S3 server in a process of its own; gives the URL of a bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        import s3fs

        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if time.monotonic() > end:
                raise SystemExit("the S3 server does not start: is automl-sweep[test] installed?")
            time.sleep(0.1)
        s3fs.S3FileSystem().mkdir("bench")
        yield "s3://bench"
    finally:
        process.terminate()
        process.wait()


def measure(rounds: int) -> list[store.Row]:
    """A row for each place: medians over the rounds, and the ratio to no artifacts."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    waited: dict[str, list[float]] = {place: [] for place in PLACES}
    with server() as url:
        contestants = {
            place: partial(attempt, url if place == "s3" else place, waited[place])
            for place in PLACES
        }
        interleaved(contestants, 1)  # imports, and the first connection
        for one in waited.values():
            one.clear()
        taken = interleaved(contestants, rounds)
    ratio = ratios(taken, "none")
    return [
        {
            "place": place,
            "rounds": rounds,
            "training": statistics.median(taken[place]),
            "ratio": ratio[place],
            "end": statistics.median(waited[place]),
            "load": os.getloadavg()[0],
            "machine": store.machine(),
        }
        for place in PLACES
    ]


def table(rows: list[store.Row]) -> str:
    """A line for each place."""
    lines = [f"{'place':8}{'training s':>12}{'ratio':>8}{'end s':>8}{'rounds':>8}{'load':>7}"]
    for row in rows:
        numbers = f"{row['training']:12.2f}{row['ratio']:8.2f}{row['end']:8.2f}"
        lines.append(f"{row['place']:8}{numbers}{row['rounds']:8}{row['load']:7.1f}")
    return "\n".join(lines)


def claims(rows: list[store.Row]) -> list[Claim]:
    """Uploads cost the training no more than `MAX_RATIO`."""
    found = {row["place"]: row["ratio"] for row in rows}
    missing = [place for place in PLACES if place not in found]
    name = "training with uploads to {}, against none"
    limits = [at_most(name.format(place), found.get(place), MAX_RATIO) for place in PLACES[1:]]
    return [complete("every place", missing), *limits]


def main() -> int:
    """Measure, store the rows and print the table."""
    parser = benchmark_parser(__doc__, "three rounds")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of each place")
    given = parser.parse_args()
    if given.table:
        rows = store.read(ROWS)
    else:
        rows = measure(3 if given.quick else given.rounds)
        if not given.quick:
            store.write(ROWS, rows)
    print(table(rows))
    return conclude(claims(rows)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
