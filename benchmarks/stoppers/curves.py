"""Time to quality on learning curves: 8 workers on a virtual clock, a budget of 100 full trainings.

    python benchmarks/stoppers/curves.py [--tables NAME ...] [--contestants NAME ...] [--seeds 5]
    python benchmarks/stoppers/curves.py --quick [--check]     ours with one seed, the peers' rows
    python benchmarks/stoppers/curves.py --table [--check]     the stored rows

The table shows the normalised regret (0 is the best of the grid, 1 the median configuration) after
1/8, 1/4, 1/2 and all of the budget. The share is the part of the budget until the regret that
random search has at its end. The oracle trains the best configuration only. Rows are stored, and
an interrupted run continues with the next missing row.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import automl
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
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
ELSEWHERE: Final = ("syne-ashabore", "syne-bohb", "smac-hyperband")  # stored rows only
OURS: Final = "bayes+curve"
MIN_SHARE: Final = 0.09
SEEDS: Final = 20
KEYS: Final = ("table", "contestant", "seed")
Rows = dict[tuple[Any, ...], store.Row]
CONTESTANTS: Final = ("random", "random+asha", *OPTUNA, *ELSEWHERE, "bayes", "bayes+asha", OURS)


def run(table: Table, contestant: str, seed: int) -> Trajectory:
    """The best loss so far over virtual seconds."""
    if contestant in OPTUNA:
        return optuna_run(table, seed, OPTUNA[contestant])
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


def measure(table: Table, contestant: str, seed: int) -> store.Row:
    """One row: the regrets at `POINTS` of the budget."""
    began = time.process_time()
    trajectory = run(table, contestant, seed)
    took = time.process_time() - began
    times = np.array([t for t, _ in trajectory])
    losses = [loss for _, loss in trajectory]
    regrets = []
    for part in POINTS:
        place = int(np.searchsorted(times, part * table.seconds * (1 + 1e-9), side="right"))
        regrets.append(round(table.regret(losses[place - 1]), 5) if place else 9.0)
    return {
        "table": table.name,
        "contestant": contestant,
        "seed": seed,
        "course": changes(regrets),
        "cpu": round(took, 1),
    }


def changes(regrets: Sequence[float]) -> list[tuple[int, float]]:
    """The places at which a curve changes, and its values from there on."""
    before = [None, *regrets]
    return [(i, now) for i, now in enumerate(regrets) if now != before[i]]


def regrets_of(row: store.Row) -> Any:
    """The curve of a row, at each of `POINTS`."""
    places, values = zip(*row["course"], strict=True)
    return np.array(values)[np.searchsorted(places, range(len(POINTS)), side="right") - 1]


def report(rows: Rows, tables: Sequence[str], contestants: Sequence[str]) -> None:
    """Print the means over seeds for each table, and the means over the tables."""
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


def _means(
    rows: Rows, tables: Sequence[str], contestants: Sequence[str]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Mean curves and shares of the contestants that were measured on every table."""
    curves = {}
    shares = {}
    for contestant in contestants:
        mine = [_own(rows, name, contestant) for name in tables]
        if all(mine):
            own = [np.mean([regrets_of(row) for row in some], axis=0) for some in mine]
            curves[contestant] = np.mean(own, axis=0)
            goals = [_goal(rows, name) for name in tables]
            shares[contestant] = float(
                np.mean([_reached(c, goal) for c, goal in zip(own, goals, strict=True)])
            )
    return curves, shares


def claims(rows: Rows, tables: Sequence[str], seeds: int) -> list[Claim]:
    """Half of the best peer's regret and share, twice as fast to its end; with everything measured.

    Args:
        rows: the measured rows.
        tables: the tables that count.
        seeds: how many seeds of ours are needed on each table.
    """
    asked = ("random+asha", *OPTUNA, *ELSEWHERE)
    none = [f"{peer} on {t}" for peer in asked for t in tables if not _own(rows, t, peer)]
    fewest = min((len(_own(rows, table, OURS)) for table in tables), default=0)
    whole = [
        complete("every peer on every table", none),
        at_least("seeds of ours", fewest or None, seeds),
    ]
    curves, shares = _means(rows, tables, CONTESTANTS)
    peers = {name: curve for name, curve in curves.items() if "bayes" not in name}
    if OURS not in curves or not peers:
        return [*whole, Claim(f"{OURS} beside its peers", None, "no rows")]
    return [*_beside_peers(curves[OURS], peers, shares), *whole]


def _beside_peers(ours: Any, peers: dict[str, Any], shares: dict[str, float]) -> list[Claim]:
    found = []
    for part in PARTS:
        best = min(peers, key=lambda name: _at(peers[name], part))
        name = f"regret after {part:g} of the budget, half of the best peer's"
        found.append(at_most(name, _at(ours, part), _at(peers[best], part) / 2, best))
    best = min(peers, key=lambda name: shares[name])
    share = min(shares[best] / 2, MIN_SHARE)
    name = "share until the regret that random search has at its end"
    found.append(at_most(name, shares[OURS], share, best))
    best = min(peers, key=lambda name: peers[name][-1])
    final = peers[best][-1]
    name = f"share until the best peer's final regret ({final:.3f})"
    return [*found, at_most(name, _reached(ours, final), _reached(peers[best], final) / 2, best)]


def _own(rows: Rows, table: str, contestant: str) -> list[store.Row]:
    return [
        row for row in rows.values() if (row["table"], row["contestant"]) == (table, contestant)
    ]


def _at(curve: Any, part: float) -> float:
    return float(curve[int(part * len(POINTS)) - 1])


def _reached(curve: Any, goal: float) -> float:
    """The share of the budget until a curve is as low as the goal; 1 if it never is."""
    places = np.nonzero(curve <= goal)[0]
    return float(POINTS[places[0]]) if len(places) else 1.0


def _goal(rows: Rows, table: str) -> float:
    ends = [row["course"][-1][1] for row in _own(rows, table, "random")]
    return float(np.mean(ends)) if ends else 0.0


def _line(table: str, contestant: str, mine: list[store.Row], goal: float) -> None:
    curve = np.mean([regrets_of(row) for row in mine], axis=0)
    ends = np.array([row["course"][-1][1] for row in mine])
    reached = np.nonzero(curve <= goal)[0]
    share = f"{POINTS[reached[0]]:.3f}" if len(reached) else "  -  "
    at = "".join(f"{_at(curve, part):8.3f}" for part in PARTS)
    error = ends.std() / max(1, len(ends) - 1) ** 0.5
    cpu = np.mean([row["cpu"] for row in mine])
    tail = f"+- {error:.3f} at the end, {len(mine)} seeds, {cpu:.0f} s"
    print(f"{table:10} {contestant:22} {at}   share {share}  {tail}")


def main() -> int:
    """Measure the missing rows, then print the table."""
    parser = benchmark_parser(__doc__, "ours with one seed")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--again", action="store_true", help="measure rows that are stored, too")
    given = parser.parse_args()
    rows = store.load(ROWS, *KEYS)
    if given.quick:
        rows = {key: row for key, row in rows.items() if row["contestant"] != OURS}
        rows |= {(name, OURS, 0): measure(Table.load(name), OURS, 0) for name in given.tables}
    elif not given.table:
        _measure_missing(given)
        rows = store.load(ROWS, *KEYS)
    report(rows, given.tables, given.contestants)
    seeds = 1 if given.quick else SEEDS
    return conclude(claims(rows, given.tables, seeds)) if given.check else 0


def _measure_missing(given: argparse.Namespace) -> None:
    for seed in range(given.seeds):
        known = store.load(ROWS, *KEYS)
        for name in given.tables:
            for contestant in [c for c in given.contestants if c not in ELSEWHERE]:
                if given.again or (name, contestant, seed) not in known:
                    store.append(ROWS, measure(Table.load(name), contestant, seed))


if __name__ == "__main__":
    sys.exit(main())
