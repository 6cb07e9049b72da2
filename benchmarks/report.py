"""Tables of the stored rows, and the verdict on what must hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.contestants import OWN
from benchmarks.store import Row

KINDS = ("tabular", "synthetic", "systems")
CUTS = (10, 25, 50, 100)
Means = dict[tuple[str, str], float]  # (suggester, problem) -> mean regret over seeds


@dataclass(frozen=True)
class Cell:
    """Mean over problems of the mean over seeds, its standard error over seeds, and how many problems are in it."""

    mean: float
    error: float
    num_problems: int


def value(row: Row, at: int, key: str = "regret") -> float | None:
    return float(row[key][row["at"].index(at)]) if at in row["at"] else None


def by_problem(rows: Iterable[Row], at: int, key: str = "regret") -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        number = value(row, at, key)
        if number is not None:
            found[row["suggester"], row["problem"]].append(number)
    return found


def cell(rows: list[Row], suggester: str, names: Iterable[str], at: int, key: str = "regret") -> Cell | None:
    """Over those of the problems for which there are rows; None where there are none."""
    table = by_problem(rows, at, key)
    groups = [table[suggester, name] for name in names if (suggester, name) in table]
    if not groups:
        return None
    errors = [np.var(g, ddof=1) / len(g) for g in groups if len(g) > 1]
    error = float(np.sqrt(np.sum(errors)) / len(groups)) if errors else float("nan")
    return Cell(float(np.mean([np.mean(g) for g in groups])), error, len(groups))


def contestants(rows: list[Row]) -> list[str]:
    return sorted({row["suggester"] for row in rows}, key=lambda n: (n not in OWN, n))


def regret_table(rows: list[Row]) -> str:
    lines = ["mean normalised regret (standard error), problems measured in brackets where some are missing"]
    header = f"{'':15s}" + "".join(f"{kind + ' @' + str(at):>19s}" for kind in KINDS for at in CUTS)
    lines.append(header)
    for name in contestants(rows):
        parts = []
        for kind in KINDS:
            kind_names = problems.names(kind)
            for at in CUTS:
                found = cell(rows, name, kind_names, at)
                parts.append(f"{_cell_text(found, len(kind_names)):>19s}")
        lines.append(f"{name:15s}" + "".join(parts))
    return "\n".join(lines)


def _cell_text(found: Cell | None, total: int) -> str:
    if found is None:
        return "-"
    missing = f" [{found.num_problems}]" if found.num_problems < total else ""
    return f"{found.mean:.3f} ({found.error:.3f}){missing}"


def ranks(rows: list[Row], at: int) -> dict[str, float]:
    """Mean rank over the problems that every listed contestant has been measured on."""
    table = {key: float(np.mean(values)) for key, values in by_problem(rows, at).items()}
    names = [n for n in contestants(rows) if n != "bayes-blackbox"]
    complete = [p for p in problems.names() if all((n, p) in table for n in names)]
    totals: dict[str, list[float]] = {n: [] for n in names}
    for problem in complete:
        values = np.array([table[n, problem] for n in names])
        for i, n in enumerate(names):
            ties = np.sum(np.abs(values - values[i]) < 1e-4)
            totals[n].append(float(np.sum(values < values[i] - 1e-4) + (ties + 1) / 2))
    return {n: float(np.mean(r)) for n, r in totals.items() if r}


def other_table(rows: list[Row]) -> str:
    """Ranks, failures, seconds, calibration."""
    placed = ranks(rows, 50)
    lines = [f"{'':15s}{'rank @50':>10s}{'failed % (half fails)':>24s}{'seconds median':>16s}{'p95':>9s}{'runs':>7s}"]
    for name in contestants(rows):
        own = [row for row in rows if row["suggester"] == name]
        failed = cell(rows, name, problems.names(tag="failing"), 50, "failed")
        seconds = np.array([row["seconds"] for row in own])
        share = f"{2 * failed.mean:.0f}%" if failed else "-"
        rank = f"{placed[name]:.2f}" if name in placed else "-"
        median, tail = np.median(seconds, axis=0)
        lines.append(f"{name:15s}{rank:>10s}{share:>24s}{median:16.3f}{tail:9.3f}{len(own):7d}")
    known = [row["calibration"] for row in rows if row.get("calibration") and row["suggester"] == "bayes"]
    if known:
        mean = {key: float(np.mean([item[key] for item in known])) for key in known[0]}
        lines.append("calibration of bayes: " + ", ".join(f"{key} {number:.3f}" for key, number in mean.items()))
    return "\n".join(lines)


def problem_table(rows: list[Row], at: int = 50) -> str:
    """Every problem: mean regret of each contestant, and the 95th percentile over seeds of ours."""
    table = by_problem(rows, at)
    names = contestants(rows)
    lines = [f"{'@' + str(at):28s}" + "".join(f"{n[:10]:>11s}" for n in names) + f"{'bayes p95':>11s}"]
    for problem in problems.names():
        means = [f"{np.mean(table[n, problem]):11.3f}" if (n, problem) in table else f"{'-':>11s}" for n in names]
        ours = table.get(("bayes", problem))
        lines.append(
            f"{problem:28s}" + "".join(means) + (f"{np.quantile(ours, 0.95):11.3f}" if ours else f"{'-':>11s}")
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """One thing that must hold: whether it does, and the figures; None where it was not measured."""

    name: str
    holds: bool | None
    figures: str

    def __str__(self) -> str:
        mark = {True: "ok", False: "MISSED", None: "not measured"}[self.holds]
        return f"{mark}: {self.name}: {self.figures}"


def _compare(name: str, ours: float | None, limit: float | None, *, strict: bool = False) -> Verdict:
    if ours is None or limit is None:
        return Verdict(name, None, f"ours {_text(ours)}, limit {_text(limit)}")
    return Verdict(name, ours < limit if strict else ours <= limit, f"{ours:.3f} (limit {limit:.3f})")


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _mean(rows: list[Row], suggester: str, names: list[str], at: int, key: str = "regret") -> float | None:
    found = cell(rows, suggester, names, at, key)
    return found.mean if found and found.num_problems == len(names) else None


def _best_peer(rows: list[Row], names: list[str], at: int) -> float | None:
    """Of the peers that were measured on all of these problems."""
    means = [_mean(rows, n, names, at) for n in contestants(rows) if n not in OWN]
    return min((m for m in means if m is not None), default=None)


def verdicts(rows: list[Row], speed: dict[tuple[Any, ...], Row], only: set[str] | None = None) -> list[Verdict]:
    """Everything that issue 3 says must hold; on a part of the problems where `only` names them."""

    def chosen(**options: Any) -> list[str]:
        return [n for n in problems.names(**options) if only is None or n in only]

    found = []
    for kind in KINDS:
        names = chosen(kind=kind)
        ours = _mean(rows, "bayes", names, 50)
        peer = _best_peer(rows, names, 50)
        found.append(_compare(f"{kind}: regret at 50 at most half of the best peer's", ours, peer and peer / 2))
        found.append(
            _compare(f"{kind}: at 25 no worse than the best peer at 50", _mean(rows, "bayes", names, 25), peer)
        )
    placed = ranks([row for row in rows if only is None or row["problem"] in only], 50)
    others = min((rank for name, rank in placed.items() if name not in OWN), default=None)
    found.append(_compare("mean rank ahead of every peer's", placed.get("bayes"), others, strict=True))
    found += [_stuck(rows, chosen()), *_groups(rows, chosen), *_apart(rows, chosen(tag="apart"))]
    found.append(_hypervolume(rows, chosen(tag="multi")))
    return found + _speed(speed)


def _stuck(rows: list[Row], names: list[str]) -> Verdict:
    table = by_problem(rows, 50)
    tails = {n: float(np.quantile(table["bayes", n], 0.95)) for n in names if ("bayes", n) in table}
    bad = {n: q for n, q in tails.items() if q > 0.3}
    figures = ", ".join(f"{n} {q:.2f}" for n, q in sorted(bad.items(), key=lambda item: -item[1])) or "none"
    name = "95th percentile over seeds at most 0.3 on every problem"
    return Verdict(name, None if len(tails) < len(names) else not bad, f"above it: {figures}")


def _groups(rows: list[Row], chosen: Callable[..., list[str]]) -> list[Verdict]:
    trees = [n for n in chosen(kind="synthetic", tag="conditional") if "multi" not in problems.load(n).tags]
    failed = _mean(rows, "bayes", chosen(tag="failing"), 50, "failed")
    return [
        _compare("conditional trees", _mean(rows, "bayes", trees, 50), 0.10),
        _compare("mixed integers", _mean(rows, "bayes", chosen(tag="mixed-integer"), 50), 0.20),
        _compare("share of failed trials where half fails", None if failed is None else failed / 50, 0.15),
    ]


def _apart(rows: list[Row], names: list[str]) -> list[Verdict]:
    ours, blind = _mean(rows, "bayes", names, 25), _mean(rows, "bayes-blackbox", names, 50)
    return [
        _compare("metrics apart: at 25 no worse than as a black box at 50", ours, blind),
        _compare("metrics apart: at 25 ahead of the best peer at 50", ours, _best_peer(rows, names, 50), strict=True),
    ]


def _hypervolume(rows: list[Row], names: list[str]) -> Verdict:
    name = "two goals, one constraint: hypervolume at 50 at least Ax's at 100"
    return _compare(name, _mean(rows, "bayes", names, 50), _mean(rows, "ax", names, 100))


LIMITS = {50: (0.15, 0.3), 200: (0.3, None), 1000: (0.5, None), 10000: (1.0, None)}


def _speed(speed: dict[tuple[Any, ...], Row]) -> list[Verdict]:
    found = []
    for size, (median, tail) in LIMITS.items():
        row = speed.get(("bayes", size), {})
        found.append(_compare(f"seconds a suggestion at {size} trials, median", row.get("median"), median))
        if tail is not None:
            found.append(_compare(f"seconds a suggestion at {size} trials, 95th percentile", row.get("p95"), tail))
    first = speed.get(("bayes", 0), {}).get("median")
    return [*found, _compare("seconds of the first suggestion of a fresh process", first, 3.0)]


def speed_table(speed: dict[tuple[Any, ...], Row]) -> str:
    """Seconds a suggestion by length of the history; 0 is the first of a fresh process, imports left out."""
    lines = ["seconds a suggestion: median (95th percentile) by number of finished trials"]
    for name in sorted({key[0] for key in speed}):
        cells = [f"{s}: {r['median']:.3f} ({r['p95']:.3f})" for (n, s), r in sorted(speed.items()) if n == name]
        lines.append(f"{name:15s} " + "   ".join(cells))
    return "\n".join(lines)
