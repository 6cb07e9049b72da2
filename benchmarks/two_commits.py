"""Runs one command in two checkouts in turn, and compares what it costs and prints.

    python benchmarks/two_commits.py OLD NEW [--rounds N] -- COMMAND [ARG ...]

OLD and NEW are folders that hold a checkout each. The command runs inside each of them, with the
checkout first on PYTHONPATH, in the order old, new, new, old, so that other work on the machine
slows both alike. The table has the medians of the processor seconds (user and system, with all
child processes), of the wall seconds, and of each number in the last line of JSON that it prints.
The last column is new divided by old.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any


def run(checkout: str, command: list[str]) -> dict[str, float]:
    """What one run costs and prints, by name; times are in seconds."""
    environment = {**os.environ, "PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {"processor seconds": spent, "wall seconds": wall}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return found | numbers(json.loads(line))
    return found


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """Every number in plain data, by its path."""
    if isinstance(value, dict):
        parts = [numbers(one, f"{name}.{key}".lstrip(".")) for key, one in value.items()]
        return {key: number for part in parts for key, number in part.items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {name: float(value)} if is_number else {}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    checkouts = [str(Path(folder).resolve()) for folder in (given.old, given.new)]
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(given.rounds):
        for checkout in checkouts[:: -1 if number % 2 else 1]:
            runs[checkout].append(run(checkout, given.command))
    old, new = (runs[checkout][0].keys() for checkout in checkouts)
    print(f"{'':40}{'old':>12}{'new':>12}{'new/old':>9}")
    for name in [name for name in old if name in new]:
        one, other = (
            statistics.median(found.get(name, 0.0) for found in runs[checkout])
            for checkout in checkouts
        )
        ratio = f"{other / one:9.2f}" if one else ""
        print(f"{name:40}{one:12.3f}{other:12.3f}{ratio}")


if __name__ == "__main__":
    sys.exit(main())
