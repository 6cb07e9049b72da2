"""Live trainings whose luck is taken out: 60 problems to develop on, 30 sealed ones.

A suggester sees the loss on one split of the data. What it recommends is judged by repeated
cross-validation on other splits. A problem is a family of models on one data set; families and data
sets of the two parts are disjoint. One training takes about 0.03 s on one thread.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.suggesters.trainings.data import DATA
from benchmarks.suggesters.trainings.family import Family, Split
from benchmarks.suggesters.trainings.sealed import SEALED
from benchmarks.suggesters.trainings.to_develop import TO_DEVELOP
from search_spaces import Space

Params = Mapping[str, Any]
Part = Literal["seen", "score", "reference"]
FOLDS = 3
# Seeds of the repetitions of the cross-validation; of the first, one fold is seen.
REPEATS: dict[Part, tuple[int, ...]] = {"seen": (0,), "score": (1, 2), "reference": (3, 4)}
WORST = 5.0  # loss of a training that diverges, about five times that of a constant


@dataclass(frozen=True)
class Training:
    """One problem: a family on a data set."""

    name: str
    family: Family
    data: str
    sealed: bool

    @property
    def kind(self) -> str:
        return self.family.kind

    @property
    def space(self) -> Space:
        return self.family.space

    def losses(self, params: Params, part: Part) -> list[float]:
        """The loss on each split of a part; of what is seen there is one."""
        x, y = DATA[self.data]()
        found = []
        for repeat in REPEATS[part]:
            order = np.random.default_rng([repeat, zlib.crc32(self.data.encode())]).permutation(
                len(y)
            )
            folds = np.array_split(order, FOLDS)
            for number, test in enumerate(folds[:1] if part == "seen" else folds):
                rest = np.setdiff1d(order, test)
                split = (x[rest], y[rest], x[test], y[test])
                found.append(self._loss(dict(params), split, FOLDS * repeat + number))
        return found

    def _loss(self, params: dict[str, Any], split: Split, seed: int) -> float:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                loss = self.family.fit(params, split, seed)
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError):
                return WORST
        return min(WORST, float(loss)) if np.isfinite(loss) else WORST


def trainings(*, sealed: bool) -> list[Training]:
    """The 60 problems to develop on, or the 30 sealed ones."""
    families = SEALED if sealed else TO_DEVELOP
    return [
        Training(f"{name}_{data}", family, data, sealed)
        for name, family in families.items()
        for data in family.data
    ]
