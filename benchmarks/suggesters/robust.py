"""The default suggester on many random spaces, histories and failures; stops at the first that it gets wrong.

python benchmarks/suggesters/robust.py [--count 10000] [--seed 0]

Writes results/robust.json after every few hundred cases, and goes on from there while the suggester's code is the same.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
from benchmarks.suggesters.contestants import fingerprint
from benchmarks.suggesters.robust_cases import Case, cases, check

RESULTS = Path(__file__).parents[1] / "results" / "robust.json"
PART = 250


def run(seed: int, count: int) -> float:
    """Check so many cases; the longest call in seconds. Raises what the suggester or the check raises."""
    longest = 0.0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cases())
    def one(case: Case) -> None:
        nonlocal longest
        begun = time.perf_counter()
        check(case)
        longest = max(longest, time.perf_counter() - begun)

    one()
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    done: dict[str, Any] = {
        "code": fingerprint("bayes"),
        "cases": 0,
        "failures": 0,
        "longest_seconds": 0.0,
    }
    if RESULTS.exists() and (before := json.loads(RESULTS.read_text())).get("code") == done["code"]:
        done = before
    while done["cases"] < options.count:
        longest = run(options.seed + done["cases"], PART)
        done = {**done, "cases": done["cases"] + PART}
        done["longest_seconds"] = round(max(done["longest_seconds"], longest), 2)
        RESULTS.write_text(json.dumps(done) + "\n")
        print(done, flush=True)


if __name__ == "__main__":
    main()
