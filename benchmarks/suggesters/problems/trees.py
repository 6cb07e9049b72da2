"""Synthetic problems whose parameters exist only under values of others."""

from __future__ import annotations

import itertools
import math

from benchmarks.suggesters.problems.base import Params, Problem, problem
from search_spaces import Choice, Float, Int, Space


def _log10(params: Params, name: str) -> float:
    return math.log10(float(params[name]))


def tree_optimizers() -> Problem:
    """An optimizer and a schedule, each with its own settings, two levels deep."""
    space = Space(
        Choice("optimizer", ["sgd", "adam", "lion", "adafactor"]),
        Float("sgd_rate", 1e-4, 10.0, log=True, when={"optimizer": "sgd"}),
        Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
        Choice("nesterov", [False, True], when={"optimizer": "sgd"}),
        Float("adam_rate", 1e-6, 0.1, log=True, when={"optimizer": "adam"}),
        Float("beta2", 0.8, 0.9999, when={"optimizer": "adam"}),
        Choice("amsgrad", [False, True], when={"optimizer": "adam"}),
        Float("lion_rate", 1e-7, 1e-2, log=True, when={"optimizer": "lion"}),
        Choice("relative", [False, True], when={"optimizer": "adafactor"}),
        Float("factor_rate", 1e-5, 1.0, log=True, when={"relative": False}),
        Choice("schedule", ["constant", "cosine", "inverse"]),
        Int("warmup", 1, 10_000, log=True, when={"schedule": ["cosine", "inverse"]}),
        Float("final", 0.0, 0.5, when={"schedule": "cosine"}),
    )

    def value(params: Params) -> float:
        loss = {"constant": 0.5, "cosine": 0.0, "inverse": 0.15}[str(params["schedule"])]
        if "warmup" in params:
            loss += 0.12 * (_log10(params, "warmup") - 2.7) ** 2
        loss += 1.5 * (float(params["final"]) - 0.08) ** 2 if "final" in params else 0.0
        return loss + _optimizer(params)

    return problem(
        "tree_optimizers", "synthetic", space, "minimize loss", value, tags="conditional"
    )


def _optimizer(params: Params) -> float:
    if params["optimizer"] == "sgd":
        gain = math.log10(1 - float(params["momentum"]))
        rate = _log10(params, "sgd_rate") - gain - 0.6
        return 2.05 + 0.3 * rate**2 + 0.2 * (gain + 1) ** 2 - (0.05 if params["nesterov"] else 0.0)
    if params["optimizer"] == "adam":
        memory = math.log10(1 - float(params["beta2"]))
        rate = _log10(params, "adam_rate") + 3.4
        return 1.9 + 0.5 * rate**2 + 0.3 * (memory + 2) ** 2 + (0.1 if params["amsgrad"] else 0.0)
    if params["optimizer"] == "lion":
        return 1.85 + 1.1 * (_log10(params, "lion_rate") + 4.2) ** 2
    return 2.4 if params["relative"] else 2.1 + 0.4 * (_log10(params, "factor_rate") + 2) ** 2


def tree_jenatton() -> Problem:
    """Two levels of switches, a float on each leaf and one shared by two leaves.

    After Jenatton et al., "Bayesian optimization with tree-structured dependencies", ICML 2017. The
    minimum is 0.1.
    """
    space = Space(
        Choice("x1", ["left", "right"]),
        Choice("x2", ["left", "right"], when={"x1": "left"}),
        Choice("x3", ["left", "right"], when={"x1": "right"}),
        Float("x4", -1.0, 1.0, when={"x2": "left"}),
        Float("x5", -1.0, 1.0, when={"x2": "right"}),
        Float("x6", -1.0, 1.0, when={"x3": "left"}),
        Float("x7", -1.0, 1.0, when={"x3": "right"}),
        Float("r8", 0.0, 1.0, when={"x1": "left"}),
        Float("r9", 0.0, 1.0, when={"x1": "right"}),
    )

    def value(params: Params) -> float:
        offset = 0.0
        (leaf,) = [n for n in ("x4", "x5", "x6", "x7") if n in params]
        offset = {"x4": 0.1, "x5": 0.2, "x6": 0.3, "x7": 0.4}[leaf]
        shared = float(params["r8"] if "r8" in params else params["r9"])
        return (float(params[leaf]) - 0.27) ** 2 + offset + (shared - 0.11) ** 2

    return problem("tree_jenatton", "synthetic", space, "minimize loss", value, tags="conditional")


def tree_pipeline() -> Problem:
    """A preparation step and a model, each with settings of its own, three levels deep."""
    space = Space(
        Choice("prepare", ["none", "pca", "bins"]),
        Int("components", 1, 64, log=True, when={"prepare": "pca"}),
        Choice("whiten", [False, True], when={"prepare": "pca"}),
        Int("num_bins", 2, 255, log=True, when={"prepare": "bins"}),
        Choice("model", ["linear", "svm", "forest", "boosting"]),
        Float("alpha", 1e-6, 1e3, log=True, when={"model": "linear"}),
        Choice("kernel", ["rbf", "poly"], when={"model": "svm"}),
        Float("c", 1e-3, 1e4, log=True, when={"model": "svm"}),
        Float("gamma", 1e-5, 10.0, log=True, when={"model": "svm", "kernel": "rbf"}),
        Int("degree", 1, 6, when={"model": "svm", "kernel": "poly"}),
        Int("forest_depth", 1, 30, when={"model": "forest"}),
        Float("features", 0.05, 1.0, when={"model": "forest"}),
        Float("shrinkage", 1e-3, 1.0, log=True, when={"model": "boosting"}),
        Int("rounds", 10, 2000, log=True, when={"model": "boosting"}),
        Int("boost_depth", 1, 12, when={"model": "boosting"}),
    )
    return problem(
        "tree_pipeline", "synthetic", space, "maximize accuracy", _pipeline, tags="conditional"
    )


def _pipeline(params: Params) -> float:
    loss = 0.0
    model = str(params["model"])
    if params["prepare"] == "pca":
        loss += 0.02 * (math.log2(float(params["components"])) - 4.5) ** 2 + (
            0.02 if params["whiten"] else 0.0
        )
        loss += {"linear": -0.02, "svm": -0.04, "forest": 0.05, "boosting": 0.06}[model]
    elif params["prepare"] == "bins":
        loss += 0.01 * (math.log2(float(params["num_bins"])) - 6) ** 2 + (
            0.06 if model in ("linear", "svm") else -0.01
        )
    if model == "linear":
        loss += 0.2 + 0.008 * (_log10(params, "alpha") - 0.5) ** 2
    elif model == "forest":
        depth = (float(params["forest_depth"]) - 18) / 30
        loss += 0.12 + 0.2 * depth**2 + 0.15 * (float(params["features"]) - 0.35) ** 2
    elif model == "boosting":
        total = _log10(params, "shrinkage") + _log10(params, "rounds") - 1.4
        loss += 0.085 + 0.12 * total**2 + 0.012 * (_log10(params, "shrinkage") + 1.6) ** 2
        loss += 0.004 * (float(params["boost_depth"]) - 4) ** 2
    elif params["kernel"] == "rbf":
        ridge = _log10(params, "c") + _log10(params, "gamma") - 0.2
        loss += 0.09 + 0.03 * ridge**2 + 0.02 * (_log10(params, "gamma") + 1.5) ** 2
    else:
        loss += (
            0.13 + 0.02 * (float(params["degree"]) - 3) ** 2 + 0.01 * (_log10(params, "c") - 1) ** 2
        )
    return 1 - math.tanh(loss)


def tree_blocks() -> Problem:
    """As many widths as there are blocks; the right width of a block depends on the one before."""
    counts = [1, 2, 3, 4, 5]
    space = Space(
        Choice("num_blocks", counts, ordered=True),
        *(Int(f"width_{i}", 8, 512, log=True, when={"num_blocks": counts[i:]}) for i in range(5)),
        Choice("skip", [False, True], when={"num_blocks": counts[1:]}),
        Float("dropout", 0.0, 0.7),
    )

    def value(params: Params) -> float:
        widths = [math.log2(float(params[f"width_{i}"])) for i in range(int(params["num_blocks"]))]
        steps = [b - a - 0.6 for a, b in itertools.pairwise(widths)]
        size = math.log2(sum(2**w for w in widths))
        loss = 1.2 - 0.16 * len(widths) + 0.045 * len(widths) ** 1.8 + 0.04 * (widths[0] - 5.2) ** 2
        loss += 0.05 * sum(s * s for s in steps) + (
            0.03 * len(widths) if not params.get("skip", True) else 0.0
        )
        return loss + 2 * (float(params["dropout"]) - 0.06 * (size - 4)) ** 2

    return problem("tree_blocks", "synthetic", space, "minimize loss", value, tags="conditional")


def problems() -> list[Problem]:
    return [tree_optimizers(), tree_jenatton(), tree_pipeline(), tree_blocks()]
