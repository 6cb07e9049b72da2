"""Recorded trainings of real networks with several seeds a configuration, as users tune them.

Numbers are continuous or integer ranges, and the nearest recorded value is looked up; or, as a
grid, they are the recorded values in their order. An evaluation is the loss of one seed. A
configuration is judged by the mean over all of its seeds. The tables are CSV files in `tables/` of
the folder of shared data; they are no part of this project.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces import Choice, Float, Int, Space

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "tables"
KINDS = {"fcnet": "networks", "mlp": "networks", "nas": "choices"}
GROWTH = 3.0  # a number whose largest value is so much larger than its smallest is logarithmic


@dataclass(frozen=True)
class RecordedTable:
    """One table.

    Args:
        path: of the CSV file; its columns `value_seed...` are results, the others parameters.
        grid: whether the space has the recorded values only, not the ranges between them.
    """

    path: Path
    grid: bool = False

    @property
    def name(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def kind(self) -> str:
        return KINDS.get(self.name.partition("_")[0], "small")

    @property
    def space(self) -> Space:
        return self._read[0]

    def seen(self, params: Mapping[str, Any], rng: np.random.Generator) -> float:
        """The loss of one seed."""
        measured = self.losses(params)
        return float(measured[rng.integers(len(measured))])

    def losses(self, params: Mapping[str, Any]) -> np.ndarray:
        """The loss of each seed that was recorded."""
        losses = self._losses[self._row(params)]
        return losses[np.isfinite(losses)]

    def score(self, params: Mapping[str, Any]) -> float:
        """The mean loss over the seeds."""
        return float(np.nanmean(self._losses[self._row(params)]))

    @functools.cached_property
    def means(self) -> np.ndarray:
        """The mean loss of every configuration, ascending."""
        return np.sort(np.nanmean(self._losses, axis=1))

    @property
    def _losses(self) -> np.ndarray:
        return self._read[2]

    @functools.cached_property
    def _read(self) -> tuple[Space, dict[str, list[Any]], np.ndarray]:
        """The space, the recorded values of each parameter, and losses in their product's order."""
        import pandas as pd

        table = pd.read_csv(self.path)
        seeds = [name for name in table if str(name).startswith("value_seed")]
        values = {
            str(name): sorted(table[name].unique().tolist()) for name in table if name not in seeds
        }
        table = table.sort_values(list(values))
        results = table[seeds].to_numpy(dtype=float)
        losses = np.log(results) if self.name.startswith("fcnet") else -results
        if len(losses) != np.prod([len(listed) for listed in values.values()]):
            raise ValueError(f"{self.path} is no complete grid")
        make = _values if self.grid else _parameter
        return Space(*(make(*item) for item in values.items())), values, losses

    def _row(self, params: Mapping[str, Any]) -> int:
        row = 0
        for name, listed in self._read[1].items():
            parameter = self.space.parameters[name]
            if isinstance(parameter, Choice):
                at = listed.index(params[name])
            else:
                units = np.array([parameter.to_unit(value) for value in listed])
                at = int(np.argmin(abs(units - parameter.to_unit(params[name]))))
            row = row * len(listed) + at
        return row


def _values(name: str, values: list[Any]) -> Choice:
    return Choice(name, values, ordered=not isinstance(values[0], str))


def _parameter(name: str, values: list[Any]) -> Choice | Float | Int:
    if isinstance(values[0], str):
        return Choice(name, values)
    low, high = values[0], values[-1]
    log = low > 0 and high > GROWTH * low
    return (Int if isinstance(low, int) else Float)(name, low, high, log=log)


def recorded_tables(folder: Path = FOLDER, *, grid: bool = False) -> list[RecordedTable]:
    """The tables in a folder; none if it is absent."""
    return [RecordedTable(path, grid) for path in sorted(folder.glob("*.csv.gz"))]
