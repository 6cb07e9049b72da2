"""The claims about our suggester: against its peers and against fixed limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.common.bounds import Claim, at_least, at_most, complete
from benchmarks.common.store import Row
from benchmarks.suggesters import problems
from benchmarks.suggesters.aggregate import (
    KINDS,
    by_problem,
    contestants,
    mean,
    ranks,
    stale,
)
from benchmarks.suggesters.fingerprint import OWN

Chosen = Callable[..., list[str]]
Speed = dict[tuple[Any, ...], Row]
# Seconds of a suggestion by the number of trials: median, 95th percentile.
LIMITS = {50: (0.15, 0.3), 200: (0.3, None), 1000: (0.5, None), 10000: (1.0, None)}
FIRST_SECONDS = 3.0
STUCK = 0.3
RIVALS = ("tpe", "optuna-gp", "smac", "ax", "hebo")
SEEDS = 20


def claims(rows: Sequence[Row], speed: Speed, only: Sequence[str]) -> list[Claim]:
    """Everything that must hold on the problems in `only`, with all stored rows."""
    chosen = _chosen(only)
    blind = mean(rows, "bayes-blackbox", chosen(tag="apart"), 50)
    ours = mean(rows, "bayes", chosen(tag="apart"), 25)
    return [
        *_quality(rows, only),
        at_most("metrics apart: at 25 no worse than as a black box at 50", ours, blind),
        _seeds(rows, only, SEEDS),
        _present([*rows, *(row for row in speed.values() if "code" in row)]),
        *_speed(speed, list(LIMITS)),
    ]


def quick_claims(
    rows: Sequence[Row], speed: Speed, only: Sequence[str], sizes: Sequence[int]
) -> list[Claim]:
    """Everything that `--quick` measures: one seed of ours is enough, and few histories."""
    return [*_quality(rows, only), _seeds(rows, only, 1), *_speed(speed, sizes)]


def _chosen(only: Sequence[str]) -> Chosen:
    def chosen(**options: Any) -> list[str]:
        return [name for name in problems.names(**options, exam=None) if name in only]

    return chosen


def _quality(rows: Sequence[Row], only: Sequence[str]) -> list[Claim]:
    chosen = _chosen(only)
    found = []
    for kind in KINDS:
        names = chosen(kind=kind)
        half = f"{kind}: regret at 50 at most half of the best peer's"
        early = f"{kind}: at 25 no worse than the best peer at 50"
        found.append(against_peers(half, rows, names, 50, 0.5))
        found.append(against_peers(early, rows, names, 25, 1.0))
    apart = "metrics apart: at 25 ahead of the best peer at 50"
    front = "two goals, one constraint: regret of the hypervolume at 50 at most Ax's at 100"
    multi = chosen(tag="multi")
    return [
        *found,
        _rank(rows, only),
        _stuck(rows, only),
        *_groups(rows, chosen),
        against_peers(apart, rows, chosen(tag="apart"), 25, 1.0),
        at_most(front, mean(rows, "bayes", multi, 50), mean(rows, "ax", multi, 100)),
        coverage(rows, only),
    ]


def against_peers(name: str, rows: Sequence[Row], names: list[str], at: int, share: float) -> Claim:
    """Our regret after `at` trials is at most `share` of each peer's regret after 50.

    A peer that has rows of some problems only counts on those, if they are at least half of all.
    The figures are those of the nearest peer.
    """
    measured = {problem for (suggester, problem) in by_problem(rows, at) if suggester == "bayes"}
    found = []
    for peer in [n for n in contestants(rows) if n not in OWN]:
        theirs = [n for n in names if (peer, n) in by_problem(rows, 50)]
        ours = mean(rows, "bayes", theirs, at) if theirs else None
        limit = mean(rows, peer, theirs, 50) if theirs else None
        if ours is not None and limit is not None and 2 * len(theirs) >= len(names):
            part = f" on its {len(theirs)} of {len(names)}" if len(theirs) < len(names) else ""
            text = f"{ours:.3f} (limit {share * limit:.3f}, {peer} {limit:.3f}{part})"
            found.append((ours / max(share * limit, 1e-9), text))
    if not found or not measured.issuperset(names):
        return Claim(name, None, "-")
    ratio, text = max(found)
    return Claim(name, ratio <= 1, text)


def coverage(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    """A comparison with the best peer needs rows of every peer on every problem."""
    table = by_problem(rows, 50)
    missing = [
        f"{peer} on {name}" for peer in RIVALS for name in names if (peer, name) not in table
    ]
    return complete("every peer measured on every problem", missing)


def _seeds(rows: Sequence[Row], names: Sequence[str], seeds: int) -> Claim:
    table = by_problem(rows, 50)
    fewest = min((len(table.get(("bayes", n), ())) for n in names), default=0)
    return at_least("seeds of ours on every problem", fewest or None, seeds)


def _present(rows: Sequence[Row]) -> Claim:
    old = stale(rows)
    figures = f"of other code: {', '.join(old) or 'none'}"
    return Claim("rows and timings of the present code", not old if rows else None, figures)


def _rank(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    placed = ranks(rows, names, 50)
    others = {rank: name for name, rank in placed.items() if name not in OWN}
    if "bayes" not in placed or not others:
        return Claim("best mean rank on all", None, "-")
    best = min(others)
    figures = f"{placed['bayes']:.2f} ({others[best]} {best:.2f})"
    return Claim("best mean rank on all", placed["bayes"] < best, figures)


def _stuck(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    table = by_problem(rows, 50)
    tails = {n: float(np.quantile(table["bayes", n], 0.95)) for n in names if ("bayes", n) in table}
    bad = sorted(((q, n) for n, q in tails.items() if q > STUCK), reverse=True)
    figures = f"above it {len(bad)}: " + (", ".join(f"{n} {q:.2f}" for q, n in bad) or "none")
    name = f"95th percentile over seeds at most {STUCK} on every problem"
    return Claim(name, None if len(tails) < len(names) or not names else not bad, figures)


def _groups(rows: Sequence[Row], chosen: Chosen) -> list[Claim]:
    multi = chosen(tag="multi")
    trees = [n for n in chosen(kind="synthetic", tag="conditional") if n not in multi]
    mixed = chosen(tag="mixed-integer")
    failed = mean(rows, "bayes", chosen(tag="failing"), 50, "failed")
    share = None if failed is None else failed / 50
    return [
        at_most("conditional trees at 50", mean(rows, "bayes", trees, 50), 0.10),
        at_most("mixed integers at 50", mean(rows, "bayes", mixed, 50), 0.20),
        at_most("share of failed trials if half of the space fails", share, 0.15),
    ]


def _speed(speed: Speed, sizes: Sequence[int]) -> list[Claim]:
    found = []
    for size in sizes:
        row = speed.get(("bayes", size), {})
        median, tail = LIMITS[size]
        name = f"seconds of a suggestion at {size} trials"
        found.append(at_most(f"{name}, median", row.get("median"), median))
        if tail is not None:
            found.append(at_most(f"{name}, 95th percentile", row.get("p95"), tail))
    first = speed.get(("bayes", 0), {}).get("median")
    name = "seconds of the first suggestion of a new process"
    return [*found, at_most(name, first, FIRST_SECONDS)]
