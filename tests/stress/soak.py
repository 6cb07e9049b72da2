"""Kill controllers, workers and nodes again and again, and count what was lost.

    python tests/stress/soak.py                       500 controllers, 200 workers and nodes
    python tests/stress/soak.py --only controllers --kills 500
    python tests/stress/soak.py --quick [--check]     every failpoint twice, some workers and nodes
    python tests/stress/soak.py --table [--check]     the stored rows

The ledger is compared with what others have seen: what the controller showed after its commits, and
which attempts the workers started. This is done after each kill and at the end of each sweep. An
interrupted run continues with the missing kills.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from faults import POINTS
from soak_kills import soak_controllers, soak_nodes, soak_workers

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, conclude
from benchmarks.common.options import benchmark_parser

ROWS = store.RESULTS / "soak.jsonl"
SOAKS = {"controllers": soak_controllers, "workers": soak_workers, "nodes": soak_nodes}
KILLS = {"controllers": 500, "workers": 180, "nodes": 20}
QUICK_KILLS = {"controllers": 2 * len(POINTS), "workers": 4, "nodes": 4}
FIELDS = ("acknowledged", "lost", "doubled", "sweeps", "ended")
Totals = Mapping[str, Mapping[str, Any]]


def totals(rows: Iterable[store.Row]) -> Totals:
    """The sums of each kind."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        empty = {**dict.fromkeys(FIELDS, 0), "kills": Counter(), "problems": []}
        total = found.setdefault(row["kind"], empty)
        total["kills"].update(row["kills"])
        total["problems"] += row["problems"]
        for name in FIELDS:
            total[name] += row[name]
    return found


def table(found: Totals) -> str:
    """The sums as Markdown, and the problems."""
    lines = [
        "| killed | kills | acknowledged events | lost | counted twice | sweeps | ended |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, total in found.items():
        cells = [kind, total["kills"].total(), *(total[name] for name in FIELDS)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, *(text for one in found.values() for text in one["problems"])])


def claims(found: Totals, kills: Mapping[str, int], kinds: Iterable[str]) -> list[Claim]:
    """Enough kills of each kind, nothing lost, nothing twice, every sweep ended."""
    made = []
    for kind in kinds:
        total = found.get(kind, {"kills": Counter(), "problems": ["nothing was measured"]})
        made += [
            at_least(f"{kind} killed", total["kills"].total(), kills[kind]),
            at_most(f"{kind}: lost", total.get("lost"), 0),
            at_most(f"{kind}: counted twice", total.get("doubled"), 0),
            at_least(f"{kind}: sweeps ended", total.get("ended"), total.get("sweeps")),
            at_most(f"{kind}: problems", len(total["problems"]), 0),
        ]
    return made


def run(kind: str, kills: int) -> store.Row:
    """Kill and count in a new folder; a row."""
    with tempfile.TemporaryDirectory(prefix="automl-soak-") as folder:
        count = SOAKS[kind](kills, time.time_ns() % 1_000_000, Path(folder))
    killed = count.kills.total()
    print(f"{kind}: {killed} kills, {count.lost} lost, {count.doubled} doubled", flush=True)
    return count.row()


def measure(kinds: Iterable[str], kills: int | None) -> None:
    """Run and store the missing kills, or another `kills`, in small pieces."""
    for kind in kinds:
        done = totals(store.read(ROWS)).get(kind, {"kills": Counter()})["kills"].total()
        left, most = kills or KILLS[kind] - done, 50 if kind == "controllers" else 10
        for begun in range(0, left, most):
            store.append(ROWS, run(kind, min(most, left - begun)))


def main() -> int:
    """Kill, count, and print the table."""
    parser = benchmark_parser(__doc__, "every failpoint twice, some workers and nodes")
    parser.add_argument("--only", choices=SOAKS)
    parser.add_argument("--kills", type=int, help="kill as many again, whatever is stored")
    given = parser.parse_args()
    kinds = [given.only] if given.only else list(SOAKS)
    if given.quick:
        found = totals([run(kind, QUICK_KILLS[kind]) for kind in kinds])
    else:
        if not given.table:
            measure(kinds, given.kills)
        found = totals(store.read(ROWS))
    print(table(found))
    wanted = QUICK_KILLS if given.quick else KILLS
    return conclude(claims(found, wanted, kinds)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
