"""Tuning of scikit-learn models on its bundled data sets, from complete tables.

A table holds the cross-validated error of every point of a grid, one array for each combination of
choices. Between the points the error is multilinear in the unit cube. So the
problem is defined everywhere, without noise, and takes microseconds on any machine.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.suggesters.problems.base import Params, Problem, problem
from search_spaces import Choice, Float, Int, Space

TABLES = Path(__file__).parent / "tables"
Branch = tuple[tuple[str, bool | int | float | str], ...]


@dataclass(frozen=True)
class Grid:
    """A space and, for each number of it, the ascending values at which its table was computed.

    Args:
        staged: the parameter whose values come from one fit (boosting rounds, epochs), if any.
        folder: of the table.
    """

    name: str
    space: Space
    values: dict[str, tuple[float, ...]]
    staged: str | None = None
    folder: Path = TABLES

    @property
    def path(self) -> Path:
        """The file of the table."""
        return self.folder / f"{self.name}.npz"

    def branches(self) -> Iterator[Branch]:
        """Every combination of the choices that are active together."""
        choices = [p for p in self.space.parameters.values() if isinstance(p, Choice)]
        seen = set()
        for combination in itertools.product(*(p.choices for p in choices)):
            full = dict(zip((p.name for p in choices), combination, strict=True))
            active = self.space.active(full)
            branch = tuple((name, value) for name, value in full.items() if name in active)
            if branch not in seen:
                seen.add(branch)
                yield branch

    def axes(self, branch: Branch) -> list[str]:
        """Names of the numbers that are active in a branch; the staged one is last."""
        names = [name for name in self.space.active(dict(branch)) if name in self.values]
        return sorted(names, key=lambda name: name == self.staged)

    @functools.cached_property
    def arrays(self) -> dict[Branch, np.ndarray]:
        """The table of each branch, one axis a number."""
        with np.load(self.path) as stored:
            return {
                branch: stored[f"branch_{i}"].astype(float)
                for i, branch in enumerate(self.branches())
            }

    def error(self, params: Params) -> float:
        """The interpolated error."""
        branch = tuple(
            (n, params[n])
            for n, p in self.space.parameters.items()
            if n in params and isinstance(p, Choice)
        )
        array = self.arrays[branch]
        for name in self.axes(branch):
            parameter = self.space.parameters[name]
            knots = parameter.to_units(self.knots(name))
            at = float(parameter.to_units([params[name]])[0])
            i = int(np.clip(np.searchsorted(knots, at) - 1, 0, len(knots) - 2))
            part = np.clip((at - knots[i]) / (knots[i + 1] - knots[i]), 0, 1)
            array = array[i] * (1 - part) + array[i + 1] * part
        return float(array)

    def knots(self, name: str) -> list[float]:
        """The values of a number in the table, ascending; integers for an Int."""
        whole = isinstance(self.space.parameters[name], Int)
        return [int(value) if whole else value for value in self.values[name]]


def log_values(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{v:.6g}") for v in np.geomspace(low, high, count))


def grids() -> list[Grid]:
    return [
        _svm(),
        _svr(),
        _forest(),
        _boosting_regressor(),
        _boosting_classifier(),
        _mlp(),
        _sgd(),
        _neighbours(),
    ]


def _svm() -> Grid:
    space = Space(
        Choice("kernel", ["rbf", "poly", "linear"]),
        Float("c", 1e-3, 1e4, log=True),
        Float("gamma", 1e-5, 10.0, log=True, when={"kernel": ["rbf", "poly"]}),
        Int("degree", 2, 5, when={"kernel": "poly"}),
        Float("coef0", 0.0, 2.0, when={"kernel": "poly"}),
    )
    values = {
        "c": log_values(1e-3, 1e4, 11),
        "gamma": log_values(1e-5, 10, 10),
        "degree": (2, 3, 5),
        "coef0": (0.0, 2.0),
    }
    return Grid("svm_breast_cancer", space, values)


def _svr() -> Grid:
    space = Space(
        Choice("kernel", ["rbf", "sigmoid"]),
        Float("c", 1e-2, 1e4, log=True),
        Float("gamma", 1e-5, 10.0, log=True),
        Float("epsilon", 1e-2, 100.0, log=True),
        Choice("scale", ["standard", "uniform"]),
    )
    return Grid(
        "svr_diabetes",
        space,
        {
            "c": log_values(1e-2, 1e4, 10),
            "gamma": log_values(1e-5, 10, 10),
            "epsilon": log_values(1e-2, 100, 4),
        },
    )


def _forest() -> Grid:
    space = Space(
        Choice("criterion", ["gini", "entropy"]),
        Int("max_depth", 1, 20),
        Int("min_samples_leaf", 1, 30, log=True),
        Float("max_features", 0.02, 1.0, log=True),
        Choice("bootstrap", [False, True]),
        Int("num_trees", 2, 32, log=True),
    )
    values = {
        "max_depth": (1, 3, 6, 10, 20),
        "min_samples_leaf": (1, 3, 10, 30),
        "max_features": log_values(0.02, 1, 5),
        "num_trees": (2, 4, 8, 16, 32),
    }
    return Grid("forest_digits", space, values, "num_trees")


_BOOSTING = {
    "learning_rate": log_values(1e-3, 1, 7),
    "rounds": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
}


def _boosting_regressor() -> Grid:
    space = Space(
        Float("learning_rate", 1e-3, 1.0, log=True),
        Int("rounds", 1, 128, log=True),
        Int("max_depth", 1, 6),
        Int("min_samples_leaf", 1, 60, log=True),
        Float("subsample", 0.3, 1.0),
        Choice("loss", ["squared_error", "huber"]),
    )
    values = {"max_depth": (1, 3, 6), "min_samples_leaf": (1, 10, 60), "subsample": (0.3, 1.0)}
    return Grid("boosting_diabetes", space, {**_BOOSTING, **values}, "rounds")


def _boosting_classifier() -> Grid:
    space = Space(
        Float("learning_rate", 1e-3, 1.0, log=True),
        Int("rounds", 1, 128, log=True),
        Int("max_depth", 1, 6),
        Float("max_features", 0.05, 1.0, log=True),
        Float("subsample", 0.3, 1.0),
    )
    values = {
        "max_depth": (1, 2, 3, 6),
        "max_features": log_values(0.05, 1, 3),
        "subsample": (0.3, 0.65, 1.0),
    }
    return Grid("boosting_breast_cancer", space, {**_BOOSTING, **values}, "rounds")


def _mlp() -> Grid:
    space = Space(
        Choice("activation", ["relu", "tanh"]),
        Choice("solver", ["adam", "sgd"]),
        Float("momentum", 0.0, 0.95, when={"solver": "sgd"}),
        Float("learning_rate", 1e-4, 1.0, log=True),
        Int("hidden", 4, 100, log=True),
        Float("alpha", 1e-5, 1.0, log=True),
        Int("batch_size", 8, 256, log=True),
        Int("epochs", 1, 16, log=True),
    )
    values = {
        "momentum": (0.0, 0.95),
        "learning_rate": log_values(1e-4, 1, 7),
        "hidden": (4, 20, 100),
        "alpha": (1e-5, 0.03, 1.0),
        "batch_size": (8, 45, 256),
        "epochs": (1, 3, 7, 16),
    }
    return Grid("mlp_digits", space, values, "epochs")


def _sgd() -> Grid:
    space = Space(
        Choice("loss", ["log_loss", "modified_huber"]),
        Choice("penalty", ["l2", "l1", "elasticnet"]),
        Float("l1_ratio", 0.0, 1.0, when={"penalty": "elasticnet"}),
        Float("alpha", 1e-6, 1.0, log=True),
        Float("eta0", 1e-4, 10.0, log=True),
        Float("power_t", 0.1, 0.9),
        Int("epochs", 1, 16, log=True),
    )
    values = {
        "l1_ratio": (0.0, 0.3, 1.0),
        "alpha": log_values(1e-6, 1, 6),
        "eta0": log_values(1e-4, 10, 7),
        "power_t": (0.1, 0.4, 0.9),
        "epochs": (1, 2, 5, 16),
    }
    return Grid("sgd_breast_cancer", space, values, "epochs")


def _neighbours() -> Grid:
    space = Space(
        Int("num_neighbours", 1, 60, log=True),
        Choice("weights", ["uniform", "distance"]),
        Float("p", 1.0, 5.0),
        Choice("scale", ["none", "standard", "uniform"]),
        Choice("reduce", [False, True]),
        Int("components", 1, 40, log=True, when={"reduce": True}),
    )
    values = {
        "num_neighbours": (1, 2, 4, 8, 20, 60),
        "p": (1.0, 2.0, 5.0),
        "components": (1, 3, 6, 12, 20, 40),
    }
    return Grid("neighbours_digits", space, values)


def problems() -> list[Problem]:
    """Those whose table has been computed."""
    found = [grid for grid in grids() if grid.path.exists()]
    return [problem(g.name, "tabular", g.space, "minimize error", g.error) for g in found]
