"""The kinds of nodes on which trials ran: seconds and memory differ between them.

Where a suggested trial will run is not known yet, so predictions are for a node like those of the
trials so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .kernel import Features

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NodeKinds:
    """The kind of the node of each trial.

    Args:
        of_trials: `n`, names; "" if unknown.
    """

    of_trials: NDArray[np.str_]

    def __getitem__(self, rows: NDArray[np.bool_]) -> NodeKinds:
        return NodeKinds(self.of_trials[rows])

    @property
    def names(self) -> list[str]:
        """The kinds, sorted."""
        return sorted(set(self.of_trials.tolist()))

    @property
    def indicators(self) -> Array:
        """`n x k`, 1 for the kind of each trial; k is 0 if all are alike."""
        names = self.names if len(self.names) > 1 else []
        same = self.of_trials[:, None] == np.array(names, dtype=np.str_)
        return np.asarray(same, dtype=np.float64)

    def groups(self) -> Iterator[tuple[float, NDArray[np.bool_]]]:
        """Of each kind, its share of the trials, and which trials these are."""
        for name in self.names:
            rows = self.of_trials == name
            yield float(rows.mean()), rows


@dataclass(frozen=True)
class AnyNodeEncoder:
    """Encodes configurations on a node whose kind is not known.

    Args:
        encoder: of configurations with the indicators of kinds as last columns.
        shares: `k`, of the trials so far, by kind.
    """

    encoder: Callable[[Array], Features]
    shares: Array

    def __call__(self, unit: Array) -> Features:
        """Features of `m x d` configurations."""
        return self.encoder(np.column_stack([unit, np.tile(self.shares, (len(unit), 1))]))
