"""From losses to regret: 0 is the best known value, 1 the best of five random trials (mean)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BEST = Path(__file__).parent / "problems" / "best.json"
Losses = tuple[float, ...]


@dataclass(frozen=True)
class RegretScale:
    """How the regret of one problem is normalised; a smaller score is better.

    Args:
        best: score of the best known configuration or front.
        five_random: mean score of five random trials.
        reference: upper corner of the dominated hypervolume for two goals; empty for one.
    """

    best: float
    five_random: float
    reference: Losses = ()

    def score(self, losses: Sequence[Losses | None]) -> float:
        """The smallest loss, or minus the hypervolume; infinite (or 0) if no trial succeeded."""
        kept = [item for item in losses if item is not None]
        if self.reference:
            return -hypervolume(np.array(kept).reshape(-1, 2), self.reference)
        return min((item[0] for item in kept), default=float("inf"))

    def regret(self, score: float) -> float:
        """Normalised regret, at most 2; a search without any success has 2."""
        return min(2.0, max(0.0, (score - self.best) / (self.five_random - self.best)))


def hypervolume(points: np.ndarray, reference: Losses) -> float:
    """Area that losses of shape (n, 2) dominate below `reference`."""
    inside = points[(points < np.array(reference)).all(axis=1)]
    area = 0.0
    ceiling = reference[1]
    for first, second in inside[np.lexsort((inside[:, 1], inside[:, 0]))]:
        if second < ceiling:
            area += (reference[0] - first) * (ceiling - second)
            ceiling = second
    return area


def scales() -> dict[str, RegretScale]:
    """The scale of each problem, from `problems/best.json`."""
    rows = json.loads(BEST.read_text())
    return {
        name: RegretScale(row["best"], row["five_random"], tuple(row.get("reference", ())))
        for name, row in rows.items()
    }
