"""Exam: tuning of scikit-learn models that the exercise does not have, from complete tables.

Data are scikit-learn's bundled and generated sets.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.suggesters.problems.base import Problem, problem
from benchmarks.suggesters.problems.tabular import Grid, log_values
from search_spaces import Choice, Float, Int, Space

TABLES = Path(__file__).parent / "exam_tables"


def grids() -> list[Grid]:
    """Every table's space and axes."""
    return [
        _extra_trees(),
        _histogram_boosting(),
        _decision_tree(),
        _logistic(),
        _kernel_ridge(),
        _svm(),
        _elastic_net(),
        _mlp_regressor(),
    ]


def _extra_trees() -> Grid:
    space = Space(
        Choice("criterion", ["squared_error", "friedman_mse"]),
        Int("max_depth", 1, 24),
        Int("min_samples_split", 2, 60, log=True),
        Float("max_features", 0.1, 1.0),
        Choice("bootstrap", [False, True]),
        Int("rounds", 1, 100, log=True),
    )
    values: dict[str, tuple[float, ...]] = {
        "max_depth": (1, 2, 3, 4, 6, 9, 14, 24),
        "min_samples_split": (2, 4, 8, 20, 60),
        "max_features": (0.1, 0.3, 0.5, 0.7, 1.0),
        "rounds": (1, 3, 10, 30, 100),
    }
    return Grid("extra_trees_diabetes", space, values, "rounds", TABLES)


def _histogram_boosting() -> Grid:
    space = Space(
        Float("learning_rate", 0.005, 1.0, log=True),
        Int("max_leaf_nodes", 2, 64, log=True),
        Int("min_samples_leaf", 1, 100, log=True),
        Float("l2_regularization", 1e-4, 100.0, log=True),
        Int("rounds", 1, 120, log=True),
    )
    values: dict[str, tuple[float, ...]] = {
        "learning_rate": log_values(0.005, 1, 8),
        "max_leaf_nodes": (2, 4, 8, 16, 64),
        "min_samples_leaf": (1, 5, 20, 50, 100),
        "l2_regularization": log_values(1e-4, 100, 4),
        "rounds": (1, 4, 12, 40, 120),
    }
    return Grid("histogram_boosting_classification", space, values, "rounds", TABLES)


def _decision_tree() -> Grid:
    space = Space(
        Choice("criterion", ["gini", "entropy"]),
        Choice("splitter", ["best", "random"]),
        Int("max_depth", 1, 20),
        Int("min_samples_leaf", 1, 40, log=True),
        Float("max_features", 0.05, 1.0),
        Float("ccp_alpha", 1e-5, 0.1, log=True),
    )
    values: dict[str, tuple[float, ...]] = {
        "max_depth": (1, 2, 3, 5, 7, 10, 14, 20),
        "min_samples_leaf": (1, 2, 4, 8, 16, 40),
        "max_features": (0.05, 0.2, 0.4, 0.6, 0.8, 1.0),
        "ccp_alpha": log_values(1e-5, 0.1, 9),
    }
    return Grid("decision_tree_wine", space, values, None, TABLES)


def _logistic() -> Grid:
    space = Space(
        Choice("degree", [1, 2], ordered=True),
        Choice("scale", ["standard", "uniform", "none"]),
        Choice("penalty", ["l2", "l1"]),
        Float("c", 1e-5, 1e4, log=True),
        Choice("class_weight", ["none", "balanced"]),
        Choice("reduce", [False, True]),
        Int("components", 1, 13, when={"reduce": True}),
    )
    values: dict[str, tuple[float, ...]] = {
        "c": log_values(1e-5, 1e4, 19),
        "components": (1, 2, 3, 5, 8, 13),
    }
    return Grid("logistic_wine", space, values, None, TABLES)


def _kernel_ridge() -> Grid:
    space = Space(
        Choice("kernel", ["rbf", "laplacian", "polynomial"]),
        Float("alpha", 1e-6, 100.0, log=True),
        Float("gamma", 1e-5, 10.0, log=True),
        Int("degree", 2, 4, when={"kernel": "polynomial"}),
        Float("coef0", 0.0, 3.0, when={"kernel": "polynomial"}),
    )
    values: dict[str, tuple[float, ...]] = {
        "alpha": log_values(1e-6, 100, 17),
        "gamma": log_values(1e-5, 10, 19),
        "degree": (2, 3, 4),
        "coef0": (0.0, 1.0, 3.0),
    }
    return Grid("kernel_ridge_friedman", space, values, None, TABLES)


def _svm() -> Grid:
    space = Space(
        Choice("kernel", ["rbf", "sigmoid"]),
        Float("c", 1e-3, 1e5, log=True),
        Float("gamma", 1e-6, 100.0, log=True),
        Choice("reduce", [False, True]),
        Int("components", 2, 20, when={"reduce": True}),
    )
    values: dict[str, tuple[float, ...]] = {
        "c": log_values(1e-3, 1e5, 17),
        "gamma": log_values(1e-6, 100, 17),
        "components": (2, 4, 7, 11, 15, 20),
    }
    return Grid("svm_classification", space, values, None, TABLES)


def _elastic_net() -> Grid:
    space = Space(
        Choice("degree", [1, 2], ordered=True),
        Float("alpha", 1e-5, 100.0, log=True),
        Float("l1_ratio", 0.0, 1.0),
        Choice("transform", ["none", "standard", "quantile", "power"]),
        Choice("positive", [False, True]),
    )
    values: dict[str, tuple[float, ...]] = {
        "alpha": log_values(1e-5, 100, 22),
        "l1_ratio": (0.0, 0.1, 0.3, 0.5, 0.8, 1.0),
    }
    return Grid("elastic_net_diabetes", space, values, None, TABLES)


def _mlp_regressor() -> Grid:
    space = Space(
        Choice("activation", ["relu", "tanh"]),
        Choice("solver", ["adam", "sgd"]),
        Float("momentum", 0.0, 0.95, when={"solver": "sgd"}),
        Float("learning_rate", 1e-5, 0.3, log=True),
        Int("hidden", 2, 128, log=True),
        Float("alpha", 1e-6, 3.0, log=True),
        Int("batch_size", 8, 200, log=True),
        Int("epochs", 2, 40, log=True),
    )
    values: dict[str, tuple[float, ...]] = {
        "momentum": (0.0, 0.5, 0.95),
        "learning_rate": log_values(1e-5, 0.3, 8),
        "hidden": (2, 8, 30, 128),
        "alpha": (1e-6, 0.01, 3.0),
        "batch_size": (8, 40, 200),
        "epochs": (2, 6, 16, 40),
    }
    return Grid("mlp_friedman", space, values, "epochs", TABLES)


def problems() -> list[Problem]:
    """Those whose table has been computed."""
    found = [grid for grid in grids() if grid.path.exists()]
    return [
        problem(
            f"exam_{grid.name}", "tabular", grid.space, "minimize error", grid.error, tags="exam"
        )
        for grid in found
    ]
