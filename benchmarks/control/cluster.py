"""How busy 64 real Ray workers are on trials of 2 s, and a sweep on 1,000 nodes that come and go.

    python benchmarks/control/cluster.py [--slots N] [--only CASE ...]   measure and store the rows
    python benchmarks/control/cluster.py --quick [--check]               8 slots; 100 nodes
    python benchmarks/control/cluster.py --table [--check]               the stored rows

Trials sleep and import nothing, and commits are in groups. Workers are processes of this machine,
whatever its number of cores. The busy share counts from the moment when every worker has begun a
trial until the last trial begins: the time inside trials, divided by slots * time. It has no start
of Ray and no tail. A node of the simulation is up for 2 h and away for 20 min on average, each
exponentially distributed; its clock is virtual.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

import automl
from automl.dispatch.simulated.faults import Fault, Outage
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, conclude
from benchmarks.common.options import benchmark_parser
from search_spaces import Choice, Float, Space

ROWS: Final = store.RESULTS / "cluster.jsonl"
KEYS: Final = ("case", "suggester", "store", "slots")
SECONDS: Final = 2.0  # of a trial
ROUNDS: Final = 60  # trials of each slot; on few cores the last worker starts late
SHARE: Final = 0.9  # least busy share of `random`
UP: Final = 7200.0  # mean seconds of a simulated node
AWAY: Final = 1200.0
CASES: Final = {
    "sqlite": ("random", "sqlite"),
    "postgresql": ("random", "postgresql"),
    "bayes": ("bayes", "sqlite"),
    "nodes": ("random", "memory"),
}
SPACE: Final = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Float("momentum", 0.0, 0.99),
    Choice("optimizer", ["sgd", "adam"]),
)


def sleep(trial: Any) -> dict[str, float]:
    """Takes two seconds; says when it began and ended, and in which process."""
    began = time.time()
    loss = abs(trial.params["lr"] - 1e-3) + trial.params["momentum"]
    time.sleep(SECONDS)
    return {"loss": loss, "began": began, "ended": time.time(), "worker": float(os.getpid())}


@contextlib.contextmanager
def place(kind: str) -> Iterator[str]:
    """Where the ledger is."""
    if kind == "postgresql":
        from tests.automl.postgres import server

        with server() as running:
            yield running.database()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield folder


def real(suggester: str, kind: str, slots: int) -> store.Row:
    """Run one sweep on Ray workers of this machine."""
    with place(kind) as where:
        result = automl.sweep(
            sleep,
            SPACE,
            "minimize loss",
            trials=slots * ROUNDS,
            workers=slots,
            suggester=suggester,
            dispatcher="ray",
            store=where,
            seed=0,
            progress=False,
        )
    done = [trial.metrics for trial in result.trials if "ended" in trial.metrics]
    share, window = busy_share(done, slots)
    return {
        "case": "real",
        "suggester": suggester,
        "store": kind,
        "slots": slots,
        "trials": len(done),
        "share": round(share, 3),
        "window": round(window, 1),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def busy_share(done: Sequence[dict[str, float]], slots: int) -> tuple[float, float]:
    """The share of the time in trials, and the seconds that it was measured over."""
    firsts: dict[float, float] = {}
    for one in sorted(done, key=lambda metrics: metrics["began"]):
        firsts.setdefault(one["worker"], one["began"])
    begin, end = max(firsts.values()), max(one["began"] for one in done)
    inside = sum(max(0.0, min(one["ended"], end) - max(one["began"], begin)) for one in done)
    return inside / (slots * (end - begin)), end - begin


class ComingAndGoing(Fault):
    """Nodes of one slot that are lost and come back, at exponentially distributed times."""

    def outages(self, num_slots: int) -> Sequence[Outage]:
        """Of two days."""
        rng, found = np.random.default_rng(0), []
        for slot in range(num_slots):
            at = float(rng.exponential(UP))
            while at < 2 * 86_400.0:
                back = at + float(rng.exponential(AWAY))
                found.append(Outage(at, back, slot, slot))
                at = back + float(rng.exponential(UP))
        return found


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Ten reports within ten to twenty minutes."""
    for step in range(1, 11):
        yield 60.0 + 60.0 * params["momentum"], {"loss": params["lr"] + 1.0 / step}


def simulated(slots: int) -> store.Row:
    """A sweep of 20 trials a node on a virtual clock."""
    began = time.process_time()
    result = automl.simulate(
        replay,
        SPACE,
        "minimize loss",
        trials=20 * slots,
        workers=slots,
        suggester="random",
        seed=0,
        faults=[ComingAndGoing()],
        max_retries=20,
    )
    attempts = sum(trial.attempts for trial in result.trials)
    completed = sum(trial.state == "completed" for trial in result.trials)
    return {
        "case": "nodes",
        "suggester": "random",
        "store": "memory",
        "slots": slots,
        "trials": len(result.trials),
        "completed": completed,
        "lost": attempts - len(result.trials),
        "milliseconds": round(1000 * (time.process_time() - began) / attempts, 2),
    }


def line(row: store.Row) -> str:
    """A row for a person."""
    if row["case"] == "nodes":
        return (
            f"{row['slots']} simulated nodes: {row['completed']} of {row['trials']} trials "
            f"completed, {row['lost']} attempts lost with their nodes, "
            f"{row['milliseconds']} ms of the controller an attempt"
        )
    return (
        f"{row['slots']} workers, {row['suggester']}, {row['store']}: "
        f"busy share {row['share']:.3f} over {row['window']} s; "
        f"load {row['load']} on {row['cores']} cores"
    )


def claims(rows: dict[tuple[Any, ...], store.Row], slots: int, nodes: int) -> list[Claim]:
    """What must hold; `bayes` is reported only."""
    found = []
    for kind in ("sqlite", "postgresql"):
        row = rows.get(("real", "random", kind, slots), {})
        name = f"busy share of {slots} workers, random, {kind}"
        found.append(at_least(name, row.get("share"), SHARE))
    row = rows.get(("nodes", "random", "memory", nodes))
    missing = None if row is None else float(row["trials"] - row["completed"])
    return [*found, at_most(f"trials that {nodes} nodes lose for good", missing, 0.0)]


def main() -> int:
    """Measure, store and print the rows."""
    parser = benchmark_parser(__doc__, "8 slots and 100 nodes")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    slots = given.slots or (8 if given.quick else 64)
    nodes = 100 if given.quick else 1000
    rows = store.load(ROWS, *KEYS) if given.table else {}
    for case in () if given.table else given.only:
        suggester, kind = CASES[case]
        row = simulated(nodes) if case == "nodes" else real(suggester, kind, slots)
        rows[tuple(row[key] for key in KEYS)] = row
        if not given.quick:
            store.append(ROWS, row)
        print(line(row), flush=True)
    if given.table:
        print("\n".join(map(line, rows.values())))
    return conclude(claims(rows, slots, nodes)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
