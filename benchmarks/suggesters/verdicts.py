"""What must hold: our suggester against its peers and against fixed limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.suggesters.aggregate import (
    KINDS,
    by_problem,
    contestants,
    mean,
    ranks,
    stale,
)
from benchmarks.suggesters.contestants import OWN

from benchmarks.common.bounds import Verdict
from benchmarks.common.store import Row
from benchmarks.suggesters import problems

Chosen = Callable[..., list[str]]
LIMITS = {
    50: (0.15, 0.3),
    200: (0.3, None),
    1000: (0.5, None),
    10000: (1.0, None),
}  # seconds: median, 95th percentile
FIRST_SECONDS = 3.0
STUCK = 0.3
RIVALS = ("tpe", "optuna-gp", "smac", "ax", "hebo")
SEEDS = 20


def verdicts(
    rows: Sequence[Row], speed: dict[tuple[Any, ...], Row], only: Sequence[str]
) -> list[Verdict]:
    """Everything that must hold, on the problems named in `only`."""

    def chosen(**options: Any) -> list[str]:
        return [n for n in problems.names(**options) if n in only]

    found = []
    for kind in KINDS:
        names = chosen(kind=kind)
        found.append(
            _against_peers(
                f"{kind}: regret at 50 at most half of the best peer's", rows, names, 50, 0.5
            )
        )
        found.append(
            _against_peers(f"{kind}: at 25 no worse than the best peer at 50", rows, names, 25, 1.0)
        )
    found += [
        _rank(rows, only),
        _stuck(rows, only),
        *_groups(rows, chosen),
        *_apart(rows, chosen(tag="apart")),
    ]
    found.append(_hypervolume(rows, chosen(tag="multi")))
    old = stale([*rows, *(row for row in speed.values() if "code" in row)])
    found += [_coverage(rows, only), _seeds(rows, only)]
    found.append(
        Verdict(
            "rows and timings of the present code",
            not old if rows else None,
            f"of other code: {old or 'none'}",
        )
    )
    return found + _speed(speed)


def _compare(name: str, ours: float | None, limit: float | None) -> Verdict:
    if ours is None or limit is None:
        text = ["-" if number is None else f"{number:.3f}" for number in (ours, limit)]
        return Verdict(name, None, f"{text[0]} (limit {text[1]})")
    return Verdict(name, ours <= limit, f"{ours:.3f} (limit {limit:.3f})")


def _against_peers(
    name: str, rows: Sequence[Row], names: list[str], at: int, share: float
) -> Verdict:
    """Regret `at` so many trials at most that share of each peer's at 50.

    A peer that was measured on some of the problems only counts on those, where they are at least half. The figures
    are of the peer that is nearest.
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
        return Verdict(name, None, "-")
    ratio, text = max(found)
    return Verdict(name, ratio <= 1, text)


def _coverage(rows: Sequence[Row], names: Sequence[str]) -> Verdict:
    """A comparison with the best peer means little before every peer was measured."""
    table = by_problem(rows, 50)
    counts = {peer: sum((peer, n) in table for n in names) for peer in RIVALS}
    missing = ", ".join(
        f"{peer} on {count} of {len(names)}" for peer, count in counts.items() if count < len(names)
    )
    return Verdict(
        "every peer measured on every problem", None if missing else True, missing or "all"
    )


def _seeds(rows: Sequence[Row], names: Sequence[str]) -> Verdict:
    table = by_problem(rows, 50)
    least = min((len(table.get(("bayes", n), ())) for n in names), default=0)
    return Verdict(
        f"ours measured with {SEEDS} seeds", True if least >= SEEDS else None, f"{least} at least"
    )


def _rank(rows: Sequence[Row], names: Sequence[str]) -> Verdict:
    placed = ranks(rows, names, 50)
    others = {rank: name for name, rank in placed.items() if name not in OWN}
    if "bayes" not in placed or not others:
        return Verdict("best mean rank on all", None, "-")
    best = min(others)
    return Verdict(
        "best mean rank on all",
        placed["bayes"] < best,
        f"{placed['bayes']:.2f} ({others[best]} {best:.2f})",
    )


def _stuck(rows: Sequence[Row], names: Sequence[str]) -> Verdict:
    table = by_problem(rows, 50)
    tails = {n: float(np.quantile(table["bayes", n], 0.95)) for n in names if ("bayes", n) in table}
    bad = sorted(((q, n) for n, q in tails.items() if q > STUCK), reverse=True)
    figures = ", ".join(f"{n} {q:.2f}" for q, n in bad) or "none"
    name = f"95th percentile over seeds at most {STUCK} on every problem"
    return Verdict(
        name, None if len(tails) < len(names) else not bad, f"above it {len(bad)}: {figures}"
    )


def _groups(rows: Sequence[Row], chosen: Chosen) -> list[Verdict]:
    trees = [
        n
        for n in chosen(kind="synthetic", tag="conditional")
        if "multi" not in problems.load(n).tags
    ]
    failed = mean(rows, "bayes", chosen(tag="failing"), 50, "failed")
    return [
        _compare("conditional trees at 50", mean(rows, "bayes", trees, 50), 0.10),
        _compare(
            "mixed integers at 50", mean(rows, "bayes", chosen(tag="mixed-integer"), 50), 0.20
        ),
        _compare(
            "share of failed trials where half of the space fails", failed and failed / 50, 0.15
        ),
    ]


def _apart(rows: Sequence[Row], names: list[str]) -> list[Verdict]:
    ours, blind = mean(rows, "bayes", names, 25), mean(rows, "bayes-blackbox", names, 50)
    return [
        _compare("metrics apart: at 25 no worse than as a black box at 50", ours, blind),
        _against_peers("metrics apart: at 25 ahead of the best peer at 50", rows, names, 25, 1.0),
    ]


def _hypervolume(rows: Sequence[Row], names: list[str]) -> Verdict:
    name = "two goals, one constraint: regret of the hypervolume at 50 at most Ax's at 100"
    return _compare(name, mean(rows, "bayes", names, 50), mean(rows, "ax", names, 100))


def _speed(speed: dict[tuple[Any, ...], Row]) -> list[Verdict]:
    found = []
    for size, (median, tail) in LIMITS.items():
        row = speed.get(("bayes", size), {})
        found.append(
            _compare(f"seconds a suggestion at {size} trials, median", row.get("median"), median)
        )
        if tail is not None:
            found.append(
                _compare(
                    f"seconds a suggestion at {size} trials, 95th percentile", row.get("p95"), tail
                )
            )
    first = speed.get(("bayes", 0), {}).get("median")
    return [
        *found,
        _compare("seconds of the first suggestion of a fresh process", first, FIRST_SECONDS),
    ]
