"""The default suggester on many random spaces, histories and failures; stops at the first failure.

    python benchmarks/suggesters/robust.py [--count 10000] [--seed 0]
    python benchmarks/suggesters/robust.py --quick [--check]     250 cases
    python benchmarks/suggesters/robust.py --table [--check]     the stored result

The result is stored in results/robust.json after every 250 cases. A later run continues from there
if the suggester's code is the same.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import json
import sys
import time
import traceback
from typing import Any

import hypothesis

from benchmarks.common.bounds import Claim, at_least, at_most, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import RESULTS
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.robust_cases import Case, cases, check

STORED = RESULTS / "robust.json"
CASES = 10_000
PART = 250


def run(seed: int, count: int) -> float:
    """Check `count` cases; the longest call in seconds.

    Raises:
        Exception: the first one of the suggester or of the check.
    """
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


def more(found: dict[str, Any], seed: int) -> dict[str, Any]:
    """The result after another `PART` of the cases."""
    try:
        longest = run(seed + found["cases"], PART)
    except Exception:  # a failure of any kind is the result
        traceback.print_exc()
        return {**found, "failures": 1}
    longest = round(max(found["longest_seconds"], longest), 2)
    return {**found, "cases": found["cases"] + PART, "longest_seconds": longest}


def claims(found: dict[str, Any], count: int) -> list[Claim]:
    """Enough cases with the present code, and no failure."""
    present = found if found.get("code") == fingerprint("bayes") else {}
    return [
        at_least("cases with the present code", present.get("cases") or None, count),
        at_most("failures", present.get("failures"), 0),
    ]


def main() -> int:
    """Check the missing cases and store the result."""
    parser = benchmark_parser(__doc__, f"{PART} cases")
    parser.add_argument("--count", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    count = PART if given.quick else given.count
    empty = {"code": fingerprint("bayes"), "cases": 0, "failures": 0, "longest_seconds": 0.0}
    kept = json.loads(STORED.read_text()) if STORED.exists() and not given.quick else empty
    found = kept if given.table or kept["code"] == empty["code"] else empty
    while not given.table and not found["failures"] and found["cases"] < count:
        found = more(found, given.seed)
        print(found, flush=True)
        if not given.quick:
            STORED.write_text(json.dumps(found) + "\n")
    if given.table:
        print(found)
    return conclude(claims(found, count)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
