"""Means over seeds and problems, ranks, and the rows that count if the code has changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.common.store import Row
from benchmarks.suggesters import problems
from benchmarks.suggesters.fingerprint import OWN, fingerprint

KINDS = ("tabular", "synthetic", "systems")
Key = tuple[str, str]  # suggester, problem


@dataclass(frozen=True)
class Cell:
    """A cell of a table: mean over problems and seeds, standard error over seeds, problems."""

    mean: float
    error: float
    num_problems: int


def select(rows: Iterable[Row]) -> list[Row]:
    """The rows of one version of each suggester.

    That is the present code if it has rows of as many problems as any version; otherwise it is the
    version with the most rows. Problems that no longer exist do not count.
    """
    groups: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    known = set(problems.names(exam=None))
    for row in rows:
        if row["problem"] in known:
            groups[row["suggester"]][row["code"]].append(row)
    found: list[Row] = []
    for suggester, versions in groups.items():
        tried = Counter(
            code for code, group in versions.items() for _ in {row["problem"] for row in group}
        )
        present = fingerprint(suggester)
        whole = tried[present] == max(tried.values())
        found += versions[present if whole else max(versions, key=lambda code: len(versions[code]))]
    return found


def stale(rows: Iterable[Row]) -> list[str]:
    """Our suggesters that have rows of another version of the code."""
    return sorted(
        {row["suggester"] for row in rows if row["code"] != fingerprint(row["suggester"])}
    )


def contestants(rows: Sequence[Row]) -> list[str]:
    return sorted({row["suggester"] for row in rows}, key=lambda name: (name not in OWN, name))


def value(row: Row, at: int, key: str = "regret") -> float | None:
    return float(row[key][row["at"].index(at)]) if at in row["at"] else None


def by_problem(rows: Iterable[Row], at: int, key: str = "regret") -> dict[Key, list[float]]:
    """Values of every seed, by suggester and problem."""
    found: dict[Key, list[float]] = defaultdict(list)
    for row in rows:
        number = value(row, at, key)
        if number is not None:
            found[row["suggester"], row["problem"]].append(number)
    return found


def cell(
    rows: Sequence[Row], suggester: str, names: Iterable[str], at: int, key: str = "regret"
) -> Cell | None:
    """The mean over those problems that have rows; None without any."""
    table = by_problem(rows, at, key)
    groups = [table[suggester, name] for name in names if (suggester, name) in table]
    if not groups:
        return None
    errors = [np.var(g, ddof=1) / len(g) for g in groups if len(g) > 1]
    error = float(np.sqrt(np.sum(errors)) / len(groups)) if errors else float("nan")
    return Cell(float(np.mean([np.mean(g) for g in groups])), error, len(groups))


def mean(
    rows: Sequence[Row], suggester: str, names: Sequence[str], at: int, key: str = "regret"
) -> float | None:
    """None unless every one of the problems was measured."""
    found = cell(rows, suggester, names, at, key)
    return found.mean if found and found.num_problems == len(names) else None


def ranks(rows: Sequence[Row], names: Sequence[str], at: int) -> dict[str, float]:
    """Mean rank among the contestants that have rows of all these problems; ties share a rank."""
    table = {key: float(np.mean(values)) for key, values in by_problem(rows, at).items()}
    whole = [
        n
        for n in contestants(rows)
        if n != "bayes-blackbox" and all((n, p) in table for p in names)
    ]
    if not whole or not names:
        return {}
    values = np.array([[table[n, p] for p in names] for n in whole])  # contestants x problems
    smaller = (values[None] < values[:, None] - 1e-4).sum(axis=1)
    ties = (np.abs(values[None] - values[:, None]) < 1e-4).sum(axis=1)
    return dict(zip(whole, (smaller + (ties + 1) / 2).mean(axis=1).tolist(), strict=True))


def wins(rows: Sequence[Row], peer: str, at: int) -> tuple[int, int]:
    """The number of problems on which ours has less regret, and the number that both have."""
    table = {key: float(np.mean(values)) for key, values in by_problem(rows, at).items()}
    both = [n for n in problems.names(exam=None) if ("bayes", n) in table and (peer, n) in table]
    return sum(table["bayes", n] < table[peer, n] for n in both), len(both)
