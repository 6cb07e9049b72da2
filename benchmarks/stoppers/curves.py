"""Time to quality on learning curves: 8 workers on a virtual clock, a budget of 100 full trainings.

    python -m benchmarks.stoppers.curves [--tables digits ...] [--contestants bayes+curve ...] [--seeds 5]
    python -m benchmarks.stoppers.curves --quick [--check]      ours with one seed, kept nowhere, beside the peers' rows
    python -m benchmarks.stoppers.curves --report [--check]     the kept rows; --check: exit status 1 where a bound is not held

Normalised regret (0 the best of the grid, 1 the median configuration) after 1/8, 1/4, 1/2 and all of the budget, the
share of the budget that each needs to reach what random search has at its end, and the hindsight oracle, which trains
only what is best; then what must hold. Rows are kept; a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import automl
from benchmarks.common import store
from benchmarks.common.bounds import Verdict, at_most, conclude
from benchmarks.peers.client import ROOT, environment
from benchmarks.stoppers.curve_peers import Trajectory, optuna_run
from benchmarks.stoppers.curve_problems import NUM_WORKERS, TABLES, Table

ROWS: Final = store.RESULTS / "curves.jsonl"
PARTS: Final = (1 / 8, 1 / 4, 1 / 2, 1.0)
POINTS: Final = np.arange(1, 201) / 200
OPTUNA: Final = {
    "random+asha-stop": "asha-stop",
    "optuna-tpe": "",
    "optuna-tpe+median": "median",
    "optuna-tpe+hyperband": "hyperband",
}
ELSEWHERE: Final = {"syne-ashabore": "syne", "syne-bohb": "syne", "smac-hyperband": "smac"}
OURS: Final = "bayes+curve"
LEAST_SHARE: Final = 0.09
SEEDS: Final = 20
KEYS: Final = ("table", "contestant", "seed")
Rows = dict[tuple[Any, ...], store.Row]
CONTESTANTS: Final = ("random", "random+asha", *OPTUNA, *ELSEWHERE, "bayes", "bayes+asha", OURS)


def run(table: Table, contestant: str, seed: int) -> Trajectory:
    """The best loss so far over virtual seconds."""
    if contestant in OPTUNA:
        return optuna_run(table, seed, OPTUNA[contestant])
    if contestant in ELSEWHERE:
        return _elsewhere(table, contestant, seed)
    suggester, _, stopper = contestant.partition("+")
    found = automl.simulate(
        table.replay,
        table.space,
        "minimize loss",
        workers=NUM_WORKERS,
        seconds=table.seconds,
        seed=seed,
        suggester=suggester,
        stopper=stopper or "none",
    )
    return list(found.trajectory)


def _elsewhere(table: Table, contestant: str, seed: int) -> Trajectory:
    """A peer in an environment of its own, in a process of its own; its processor time is not counted."""
    script = Path(__file__).parents[1] / "peers" / "curves_adapter.py"
    command = [environment(ELSEWHERE[contestant]), script, contestant, table.name, str(seed)]
    single = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=single
    ).stdout
    return [(float(at), float(loss)) for at, loss in json.loads(printed)]


def measure(table: Table, contestant: str, seed: int) -> store.Row:
    """One row: regrets at `POINTS` of the budget."""
    began = time.process_time()
    trajectory = run(table, contestant, seed)
    took = time.process_time() - began
    times, losses = np.array([t for t, _ in trajectory]), [loss for _, loss in trajectory]
    regrets = []
    for part in POINTS:
        place = int(np.searchsorted(times, part * table.seconds * (1 + 1e-9), side="right"))
        regrets.append(round(table.regret(losses[place - 1]), 5) if place else 9.0)
    return {
        "table": table.name,
        "contestant": contestant,
        "seed": seed,
        "regrets": regrets,
        "cpu": round(took, 1),
    }


def report(rows: Rows, tables: Sequence[str], contestants: Sequence[str]) -> list[Verdict]:
    """Means over tables and seeds; the share is of the budget, to random search's mean regret at its end.

    Returns:
        What must hold.
    """
    for name in tables:
        table = Table.load(name)
        oracle = [table.oracle(part * table.seconds) for part in PARTS]
        print(f"{name:10} {'oracle':22} " + "".join(f"{max(r, 0):8.3f}" for r in oracle))
        for contestant in contestants:
            mine = _own(rows, name, contestant)
            if mine:
                _line(name, contestant, mine, _goal(rows, name))
    print()
    curves, shares = _means(rows, tables, contestants)
    for contestant, curve in curves.items():
        at = "".join(f"{_at(curve, part):8.3f}" for part in PARTS)
        print(f"{'all':10} {contestant:22} {at}   share {shares[contestant]:.3f}")
    peers = {name: curve for name, curve in curves.items() if "bayes" not in name}
    return _verdicts(curves[OURS], peers, shares) if OURS in curves and peers else []


def _means(
    rows: Rows, tables: Sequence[str], contestants: Sequence[str]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Mean curves and shares over the tables, of those that were measured on all of them."""
    curves, shares = {}, {}
    for contestant in contestants:
        mine = [_own(rows, name, contestant) for name in tables]
        if all(mine):
            own = [np.mean([row["regrets"] for row in some], axis=0) for some in mine]
            curves[contestant] = np.mean(own, axis=0)
            goals = [_goal(rows, name) for name in tables]
            shares[contestant] = float(
                np.mean([_reached(c, goal) for c, goal in zip(own, goals, strict=True)])
            )
    return curves, shares


def _verdicts(ours: Any, peers: dict[str, Any], shares: dict[str, float]) -> list[Verdict]:
    """Half of the best peer's regret at each point, half of its share, twice as fast to its end."""
    found = []
    for part in PARTS:
        best = min(peers, key=lambda name: _at(peers[name], part))
        name = f"regret after {part:g} of the budget, half of the best peer's"
        found.append(at_most(name, _at(ours, part), _at(peers[best], part) / 2, best))
    best = min(peers, key=lambda name: shares[name])
    share = min(shares[best] / 2, LEAST_SHARE)
    found.append(at_most("share to what random search has at its end", shares[OURS], share, best))
    best = min(peers, key=lambda name: peers[name][-1])
    final = peers[best][-1]
    name = f"share to the best peer's end ({final:.3f})"
    return [*found, at_most(name, _reached(ours, final), _reached(peers[best], final) / 2, best)]


def _measured(rows: Rows, tables: Sequence[str]) -> list[Verdict]:
    """Whether every peer was measured on every table, and ours with as many seeds as are asked for."""
    asked = ("random+asha", *OPTUNA, *ELSEWHERE)
    none = [name for name in asked if not all(_own(rows, table, name) for table in tables)]
    seeds = min(len(_own(rows, table, OURS)) for table in tables)
    covered = Verdict(
        "every peer measured on every table",
        None if none else True,
        f"none of {none}" if none else "all",
    )
    return [
        covered,
        Verdict("seeds of ours", True if seeds >= SEEDS else None, f"{seeds}, {SEEDS} asked"),
    ]


def _own(rows: Rows, table: str, contestant: str) -> list[store.Row]:
    return [
        row for row in rows.values() if (row["table"], row["contestant"]) == (table, contestant)
    ]


def _at(curve: Any, part: float) -> float:
    return float(curve[int(part * len(POINTS)) - 1])


def _reached(curve: Any, goal: float) -> float:
    """The share of the budget after which a curve is as low as the goal; 1 where it never is."""
    places = np.nonzero(curve <= goal)[0]
    return float(POINTS[places[0]]) if len(places) else 1.0


def _goal(rows: Rows, table: str) -> float:
    ends = [row["regrets"][-1] for row in _own(rows, table, "random")]
    return float(np.mean(ends)) if ends else 0.0


def _line(table: str, contestant: str, mine: list[store.Row], goal: float) -> None:
    curve = np.mean([row["regrets"] for row in mine], axis=0)
    ends = np.array([row["regrets"][-1] for row in mine])
    reached = np.nonzero(curve <= goal)[0]
    share = f"{POINTS[reached[0]]:.3f}" if len(reached) else "  -  "
    at = "".join(f"{_at(curve, part):8.3f}" for part in PARTS)
    error = ends.std() / max(1, len(ends) - 1) ** 0.5
    cpu = np.mean([row["cpu"] for row in mine])
    print(
        f"{table:10} {contestant:22} {at}   share {share}  +- {error:.3f} at the end, {len(mine)} seeds, {cpu:.0f} s"
    )


def main() -> int:
    """Measure what is missing, then report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--again", action="store_true", help="measure what has a row already, too")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    for flag in ("quick", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    rows = store.load(ROWS, *KEYS)
    if given.quick:
        rows = {key: row for key, row in rows.items() if row["contestant"] != OURS}
        rows |= {(name, OURS, 0): measure(Table.load(name), OURS, 0) for name in given.tables}
    elif not given.report:
        _measure_missing(given)
        rows = store.load(ROWS, *KEYS)
    found = report(rows, given.tables, given.contestants)
    return (
        conclude([*found, *([] if given.quick else _measured(rows, given.tables))])
        if given.check
        else 0
    )


def _measure_missing(given: argparse.Namespace) -> None:
    for seed in range(given.seeds):
        known = store.load(ROWS, *KEYS)
        for name in given.tables:
            for contestant in given.contestants:
                if given.again or (name, contestant, seed) not in known:
                    store.append(ROWS, measure(Table.load(name), contestant, seed))


if __name__ == "__main__":
    sys.exit(main())
