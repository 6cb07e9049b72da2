"""Tables of learning curves as replays: complete grids, interpolated so that no two tie."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from search_spaces import Float, Space

FOLDER: Final = Path(__file__).parent / "tables"
TABLES: Final = ("digits", "recurrent", "modular", "factors")
UNSEEN: Final = ("graph",)  # never used to change the stopper
NUM_WORKERS: Final = 8
NUM_TRAININGS: Final = 100  # full trainings that fit into the budget
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A grid of learning curves.

    Args:
        name: one of `TABLES` or `UNSEEN`.
        curves: losses, an array of (grid x reports).
        rates: seconds of a report, on the grid of the first axes.
        axes: the values of each parameter, by name.
    """

    name: str
    curves: Array
    rates: Array
    axes: Mapping[str, Array]

    @classmethod
    def load(cls, name: str) -> Table:
        """Read a table by its name."""
        with np.load(FOLDER / f"{name}.npz") as file:
            keys = sorted(
                (key for key in file.files if key.startswith("axis_")),
                key=lambda key: int(key.split("_")[1]),
            )
            axes = {key.split("_", 2)[2]: file[key].astype(np.float64) for key in keys}
            curves = file["curves"].astype(np.float64)
            rates = file["seconds"]
        shape = curves.shape[:-1]
        size = 1
        depth = next(
            i for i in range(len(shape) + 1) if (size := math.prod(shape[:i])) == len(rates)
        )
        return cls(name, curves, rates.reshape(shape[:depth] if size else ()), axes)

    @cached_property
    def space(self) -> Space:
        """One number on a logarithmic scale for each axis."""
        return Space(
            *(Float(name, float(a[0]), float(a[-1]), log=True) for name, a in self.axes.items())
        )

    @property
    def num_steps(self) -> int:
        """The number of reports of a full training."""
        return int(self.curves.shape[-1])

    def corners(self, params: Mapping[str, Any]) -> list[tuple[tuple[int, ...], float]]:
        """The grid points around a configuration, and their weights.

        The interpolation is multilinear in the logarithms.
        """
        sides = []
        for name, axis in self.axes.items():
            logs = np.log(axis)
            position = float(np.interp(math.log(params[name]), logs, np.arange(len(axis))))
            low = min(int(position), len(axis) - 2)
            sides.append(((low, 1 - (position - low)), (low + 1, position - low)))
        found = []
        for corner in itertools.product(*sides):
            weight = math.prod(w for _, w in corner)
            if weight > 0:
                found.append((tuple(i for i, _ in corner), weight))
        return found

    def curve(self, params: Mapping[str, Any]) -> Array:
        """The loss at each report."""
        total: Array = sum(
            (w * self.curves[index] for index, w in self.corners(params)), np.zeros(self.num_steps)
        )
        return total

    def rate(self, params: Mapping[str, Any]) -> float:
        """Seconds of a report."""
        depth = self.rates.ndim
        return sum(w * float(self.rates[index[:depth]]) for index, w in self.corners(params))

    def replay(self, params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        """For `automl.simulate`."""
        rate = self.rate(params)
        for loss in self.curve(params):
            yield rate, {"loss": float(loss)}

    @cached_property
    def grid_rates(self) -> Array:
        """Seconds of a report, on the whole grid."""
        extra = self.curves.ndim - 1 - self.rates.ndim
        return np.broadcast_to(
            self.rates.reshape(*self.rates.shape, *[1] * extra), self.curves.shape[:-1]
        )

    @property
    def seconds(self) -> float:
        """The budget in virtual seconds."""
        return NUM_TRAININGS * float(self.grid_rates.mean()) * self.num_steps / NUM_WORKERS

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The best loss of all, and the best loss of the median configuration."""
        best = self.curves.min(-1)
        return float(best.min()), float(np.median(best))

    def regret(self, loss: float) -> float:
        """0 for the best, 1 for the median configuration."""
        low, middle = self.bounds
        return (loss - low) / (middle - low)

    def oracle(self, seconds: float) -> float:
        """Regret of a search that trains only the configuration that is best at that time."""
        steps = np.minimum((seconds / self.grid_rates).astype(int), self.num_steps)
        running = np.minimum.accumulate(self.curves, -1)
        index = np.maximum(steps - 1, 0)
        reached = np.take_along_axis(running, index[..., None], -1)[..., 0]
        return self.regret(float(np.where(steps > 0, reached, np.inf).min()))
