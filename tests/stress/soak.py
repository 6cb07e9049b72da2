"""Kill controllers, workers and nodes again and again, and count what was lost.

    python tests/stress/soak.py                       500 controllers, 200 workers and nodes
    python tests/stress/soak.py --only controllers --kills 500
    python tests/stress/soak.py --quick [--check]     every failpoint twice, some workers and nodes
    python tests/stress/soak.py --table [--check]     the stored rows

The ledger is compared with what others have seen: what the controller showed after its commits, and
which attempts the workers started. This is done after each kill and at the end of each sweep. An
interrupted run continues with the missing kills.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from faults import POINTS
from soak_kills import measure_resume, soak_controllers, soak_nodes, soak_workers

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, conclude
from benchmarks.common.options import benchmark_parser

ROWS = store.RESULTS / "soak.jsonl"
SOAKS = {"controllers": soak_controllers, "workers": soak_workers, "nodes": soak_nodes}
KINDS = (*SOAKS, "resume")
KILLS = {"controllers": 500, "workers": 180, "nodes": 20}
QUICK_KILLS = {"controllers": 2 * len(POINTS), "workers": 4, "nodes": 4}
FIELDS = ("acknowledged", "lost", "doubled", "sweeps", "ended")
RESUMED_TRIALS = 10_000
MAX_SECONDS = 10.0
Totals = Mapping[str, Mapping[str, Any]]


def totals(rows: Iterable[store.Row]) -> Totals:
    """The sums of each kind; the longest time to resume."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["kind"] == "resume":
            before = found.get("resume", row)
            found["resume"] = max(before, row, key=lambda r: r["seconds"])
            continue
        empty = {**dict.fromkeys(FIELDS, 0), "kills": Counter(), "problems": []}
        total = found.setdefault(row["kind"], empty)
        total["kills"].update(row["kills"])
        total["problems"] += row["problems"]
        for name in FIELDS:
            total[name] += row[name]
    return found


def table(found: Totals) -> str:
    """The sums as Markdown, the kills by point, and the time to resume."""
    lines = [
        "| killed | kills | acknowledged events | lost | counted twice | sweeps | ended |",
        "|---|---|---|---|---|---|---|",
    ]
    killed = {kind: total for kind, total in found.items() if kind != "resume"}
    for kind, total in killed.items():
        cells = [kind, total["kills"].total(), *(total[name] for name in FIELDS)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines.append("")
    for kind, total in killed.items():
        points = ", ".join(f"{point} {n}" for point, n in sorted(total["kills"].items()))
        lines.append(f"{kind}: {points}")
        lines += [f"  {problem}" for problem in total["problems"]]
    if "resume" in found:
        row = found["resume"]
        size = f"{row['trials']} trials and {row['reports']} reports"
        lines.append(f"resume with {size}: {row['seconds']:.1f} s at most")
    return "\n".join(lines)


def claims(found: Totals, kills: Mapping[str, int], kinds: Iterable[str]) -> list[Claim]:
    """Enough kills of each kind, nothing lost, nothing twice, every sweep ended, a fast resume."""
    made = []
    for kind in kinds:
        total = found.get(kind, {})
        if kind == "resume":
            made.append(at_most("seconds to resume", total.get("seconds"), MAX_SECONDS))
            continue
        done = total["kills"].total() if total else None
        made.append(at_least(f"{kind} killed", done, kills[kind]))
        made.append(at_most(f"{kind}: lost", total.get("lost"), 0))
        made.append(at_most(f"{kind}: counted twice", total.get("doubled"), 0))
        made.append(at_least(f"{kind}: sweeps ended", total.get("ended"), total.get("sweeps")))
        problems = total.get("problems")
        made.append(
            Claim(f"{kind}: no problem", None if not total else not problems, str(problems))
        )
    return made


def run(kind: str, kills: int) -> store.Row:
    """Kill and count in a new folder; a row."""
    folder = Path(tempfile.mkdtemp(prefix="automl-soak-"))
    try:
        count = SOAKS[kind](kills, time.time_ns() % 1_000_000, folder)
    finally:
        shutil.rmtree(folder)
    killed = count.kills.total()
    print(f"{kind}: {killed} kills, {count.lost} lost, {count.doubled} doubled", flush=True)
    return count.row()


def quick(kinds: Iterable[str]) -> list[store.Row]:
    """Few kills of each kind."""
    return [
        measure_resume(RESUMED_TRIALS) if kind == "resume" else run(kind, QUICK_KILLS[kind])
        for kind in kinds
    ]


def measure(kinds: Iterable[str], kills: int | None) -> None:
    """Run and store the missing kills, or another `kills`, in small pieces."""
    for kind in kinds:
        if kind == "resume":
            store.append(ROWS, measure_resume(RESUMED_TRIALS))
            continue
        done = totals(store.read(ROWS)).get(kind, {"kills": Counter()})["kills"].total()
        left = kills or KILLS[kind] - done
        while left > 0:
            piece = min(left, 50 if kind == "controllers" else 10)
            store.append(ROWS, run(kind, piece))
            left -= piece


def main() -> int:
    """Kill, count, and print the table."""
    parser = benchmark_parser(__doc__, "every failpoint twice, some workers and nodes")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--kills", type=int, help="kill as many again, whatever is stored")
    given = parser.parse_args()
    kinds = [given.only] if given.only else list(KINDS)
    if given.quick:
        found = totals(quick(kinds))
    else:
        if not given.table:
            measure(kinds, given.kills)
        found = totals(store.read(ROWS))
    print(table(found))
    return (
        conclude(claims(found, QUICK_KILLS if given.quick else KILLS, kinds)) if given.check else 0
    )


if __name__ == "__main__":
    sys.exit(main())
