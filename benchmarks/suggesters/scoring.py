"""From losses to regret: 0 is the best known value, 1 the mean of the best of five random trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BEST = Path(__file__).parent / "problems" / "best.json"
Losses = tuple[float, ...]


@dataclass(frozen=True)
class Scale:
    """How one problem is normalised, all in terms of a score where smaller is better.

    Args:
        best: of the best known configuration or front; five_random: mean over draws of five random trials.
        reference: upper corner of the dominated hypervolume where there are two goals, else empty.
    """

    best: float
    five_random: float
    reference: Losses = ()

    def score(self, losses: Sequence[Losses | None]) -> float:
        """One goal: the smallest loss. Two: minus the hypervolume. Infinite (or 0) where nothing succeeded."""
        kept = [item for item in losses if item is not None]
        if self.reference:
            return -hypervolume(np.array(kept).reshape(-1, 2), self.reference)
        return min((item[0] for item in kept), default=float("inf"))

    def regret(self, score: float) -> float:
        """Normalised; a search without any success counts as 2."""
        return min(2.0, max(0.0, (score - self.best) / (self.five_random - self.best)))


def hypervolume(points: np.ndarray, reference: Losses) -> float:
    """Area that `n x 2` losses dominate below `reference`."""
    inside = points[(points < np.array(reference)).all(axis=1)]
    area, ceiling = 0.0, reference[1]
    for first, second in inside[np.lexsort((inside[:, 1], inside[:, 0]))]:
        if second < ceiling:
            area += (reference[0] - first) * (ceiling - second)
            ceiling = second
    return area


def scales() -> dict[str, Scale]:
    """By problem, as the long search stored them."""
    rows = json.loads(BEST.read_text())
    return {
        name: Scale(row["best"], row["five_random"], tuple(row.get("reference", ())))
        for name, row in rows.items()
    }
