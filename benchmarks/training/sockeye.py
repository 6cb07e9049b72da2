"""Our translation workload beside Sockeye 3: training, quality, decoding, memory and start.

    python benchmarks/training/sockeye.py --data DIR [PART ...]              the missing rows
    python benchmarks/training/sockeye.py --quick [--check] --data DIR       short trainings
    python benchmarks/training/sockeye.py --table [--check]                  the stored rows

The parts are speed, quality and decoding; `--quick` measures the first.
DIR holds Multi30k, English to German; it is put into lower case and split into words and marks.
Both systems train 2+2 layers of width 256, 4 heads and 1,024 hidden units on batches of 2,048
target words, with a shared vocabulary of 8,000 words and the same schedule.

Sockeye runs in its own environment under benchmarks/.envs. If that is not installed, `--quick`
compares CPU seconds and memory with Sockeye's stored rows. Otherwise the runs take turns, and the
claims use the median ratio of the pairs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.common.bounds import conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import load
from benchmarks.peers.client import ENVS, ROOT, installed
from benchmarks.training.sockeye_runs import KEYS, OURS, SockeyeComparison
from benchmarks.training.sockeye_table import CLOCKS, PARTS, ROWS, Rows, claims, table
from benchmarks.training.sockeye_text import prepare

DATA = ROOT.parent / "shared" / "data" / "multi30k"
QUICK = ("speed",)


def measure(
    comparisons: tuple[SockeyeComparison, SockeyeComparison],
    parts: list[str],
    data: Path,
    rounds: int,
    seeds: int,
) -> None:
    """Measure the missing rows of these parts, by a comparison of short runs and one of long."""
    short, long = comparisons
    prepare(data, short.work / "text")
    jobs = {
        "speed": lambda: short.speed(rounds),
        "quality": lambda: long.quality(seeds),
        "decoding": lambda: long.decoding(rounds),
    }
    for part in parts:
        jobs[part]()


def recorded_peer() -> Rows:
    """The stored rows of Sockeye."""
    return {key: row for key, row in load(ROWS, *KEYS).items() if key[1] == "sockeye"}


def main() -> int:
    """Measure the missing rows and print the table."""
    parser = benchmark_parser(__doc__, "one round of short trainings")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: {' '.join(PARTS)}")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Multi30k")
    work = ENVS / "sockeye-work"
    parser.add_argument("--work", type=Path, default=work, help="folder of text and models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--systems", nargs="*", default=[], help="default: all; sockeye fp32 bf16")
    parser.add_argument("--updates", type=int, default=600, help="of a training of `quality`")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}; choose from {', '.join(PARTS)}")
    work = given.work.resolve()
    kept = work / "quick.jsonl" if given.quick else ROWS
    parts = given.parts or list(QUICK if given.quick else PARTS)
    rounds, seeds = (1, 1) if given.quick else (given.rounds, given.seeds)
    systems = given.systems
    if given.quick:
        kept.unlink(missing_ok=True)
        systems = systems or (["sockeye", *OURS] if installed("sockeye") else list(OURS))
    if not given.table:
        lengths = (12, 60) if given.quick else (40, given.updates)
        short, long = (SockeyeComparison(work, kept, given.threads, n, systems) for n in lengths)
        measure((short, long), parts, given.data, rounds, seeds)
    rows: Rows = load(kept, *KEYS)
    clocks: tuple[str, ...] = CLOCKS
    if given.quick and "sockeye" not in systems:
        rows = {**rows, **recorded_peer()}
        clocks = ("cpu_seconds",)
    text = table(rows)
    print(text)
    found = claims(rows, parts, clocks)
    if not given.quick:
        ROWS.with_suffix(".txt").write_text("\n".join([text, *map(str, found)]) + "\n")
    return conclude(found) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
