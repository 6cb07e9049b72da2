"""Tables of the measured rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.common.store import Row
from benchmarks.suggesters import problems
from benchmarks.suggesters.aggregate import (
    KINDS,
    Cell,
    by_problem,
    cell,
    contestants,
    ranks,
    stale,
    wins,
)

CUTS = (10, 25, 50, 100)


def regret_table(rows: Sequence[Row], names: Iterable[str]) -> str:
    lines = [
        "mean normalised regret (standard error over seeds) [problems, if some are missing]",
        f"{'':15s}" + "".join(f"{kind + ' @' + str(at):>20s}" for kind in KINDS for at in CUTS),
    ]
    kinds = {kind: [n for n in names if problems.load(n).kind == kind] for kind in KINDS}
    for name in contestants(rows):
        cells = [
            _cell_text(cell(rows, name, kinds[kind], at), len(kinds[kind]))
            for kind in KINDS
            for at in CUTS
        ]
        lines.append(f"{name:15s}" + "".join(f"{text:>20s}" for text in cells))
    return "\n".join(lines)


def _cell_text(found: Cell | None, total: int) -> str:
    if found is None:
        return "-"
    missing = f" [{found.num_problems}]" if found.num_problems < total else ""
    return f"{found.mean:.3f} ({found.error:.3f}){missing}"


def other_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Ranks, wins of ours, failures and seconds."""
    placed = ranks(rows, names, 50)
    failing = [n for n in problems.names(tag="failing", exam=None) if n in names]
    lines = [
        f"{'':15s}{'rank @50':>10s}{'bayes ahead':>13s}{'failed where half fails':>25s}"
        f"{'seconds median':>16s}{'p95':>8s}{'runs':>6s}{'seeds':>7s}"
    ]
    for name in contestants(rows):
        own = [row for row in rows if row["suggester"] == name]
        failed = cell(rows, name, failing, 50, "failed")
        share = f"{2 * failed.mean:.0f}%" if failed else "-"
        rank = f"{placed[name]:.2f}" if name in placed else "-"
        ahead = "-" if name == "bayes" else "{} of {}".format(*wins(rows, name, 50))
        median, tail = np.median([row["seconds"] for row in own], axis=0)
        seeds = len({row["seed"] for row in own})
        numbers = f"{median:16.3f}{tail:8.3f}{len(own):6d}{seeds:7d}"
        lines.append(f"{name:15s}{rank:>10s}{ahead:>13s}{share:>25s}{numbers}")
    return "\n".join([*lines, *_notes(rows)])


def _notes(rows: Sequence[Row]) -> list[str]:
    return [f"the rows of {name} come from another version of its code" for name in stale(rows)]


def problem_table(rows: Sequence[Row], names: Iterable[str], at: int = 50) -> str:
    """A line for each problem: mean regrets; and of ours 95th percentile, worst seed, failures."""
    table = by_problem(rows, at)
    failed = by_problem(rows, at, "failed")
    who = contestants(rows)
    lines = [
        f"{'@' + str(at):26s}"
        + "".join(f"{n[:10]:>11s}" for n in who)
        + f"{'bayes p95':>11s}{'worst':>8s}{'failed':>8s}{'seeds':>7s}"
    ]
    for problem in names:
        means = [
            f"{np.mean(table[n, problem]):11.3f}" if (n, problem) in table else f"{'-':>11s}"
            for n in who
        ]
        ours = table.get(("bayes", problem))
        tail = ""
        if ours:
            share = np.mean(failed["bayes", problem]) / at
            tail = f"{np.quantile(ours, 0.95):11.3f}{max(ours):8.3f}{share:8.0%}{len(ours):7d}"
        lines.append(f"{problem:26s}" + "".join(means) + tail)
    return "\n".join(lines)


def speed_table(speed: dict[tuple[Any, ...], Row]) -> str:
    """CPU seconds of a suggestion by length of the history; 0 is the first of a new process."""
    lines = [
        "CPU seconds of a suggestion on one thread, by finished trials: median, 95th percentile"
    ]
    for name in sorted({key[0] for key in speed}):
        cells = [
            f"{s}: {r['median']:.3f}, {r['p95']:.3f}"
            for (n, s), r in sorted(speed.items())
            if n == name
        ]
        lines.append(f"{name:15s} " + "   ".join(cells))
    return "\n".join(lines)
