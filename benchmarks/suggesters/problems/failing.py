"""Synthetic problems: about half of the space fails, and the optimum is at the boundary."""

from __future__ import annotations

import math

from benchmarks.suggesters.problems.base import Params, Problem, problem
from search_spaces import Choice, Float, Int, Space
from search_spaces.errors import TrialFailure


def failing_memory() -> Problem:
    """Larger is better until it no longer fits; how much fits depends on two choices."""
    space = Space(
        Int("width", 32, 4096, log=True),
        Int("batch", 1, 1024, log=True),
        Float("rate", 1e-5, 1.0, log=True),
        Choice("precision", ["fp32", "bf16"]),
        Choice("recompute", [False, True]),
    )

    def value(params: Params) -> float:
        width = math.log2(float(params["width"]))
        batch = math.log2(float(params["batch"]))
        used = 2 ** (2 * width - 16) + 2 ** (width + batch - 10) * (
            0.35 if params["recompute"] else 1.0
        )
        if used * (0.55 if params["precision"] == "bf16" else 1.0) > 16:
            raise TrialFailure("out_of_memory")
        rate = math.log10(float(params["rate"])) + 2.4 - 0.15 * (batch - 5) + 0.1 * (width - 8)
        loss = 3.2 * 2 ** (-0.2 * (width - 5)) + 0.22 * rate**2 + 0.6 * 2 ** (-0.5 * (batch - 2))
        return (
            loss
            + (0.04 if params["recompute"] else 0.0)
            + (0.02 if params["precision"] == "bf16" else 0.0)
        )

    return problem("failing_memory", "synthetic", space, "minimize loss", value, tags="failing")


def failing_divergence() -> Problem:
    """The faster it learns, the better, until it diverges."""
    space = Space(
        Float("rate", 1e-4, 10.0, log=True),
        Float("momentum", 0.0, 0.99),
        Float("clip", 0.01, 10.0, log=True),
        Int("warmup", 1, 1000, log=True),
        Choice("norm", ["none", "layer"]),
    )

    def value(params: Params) -> float:
        speed = math.log10(float(params["rate"])) - 0.7 * math.log10(1 - float(params["momentum"]))
        clip = math.log10(float(params["clip"]))
        warmup = math.log10(float(params["warmup"]))
        edge = -1.5 - 0.35 * clip + 0.3 * warmup + (0.7 if params["norm"] == "layer" else 0.0)
        if speed > edge:
            raise TrialFailure("non_finite")
        return (
            1.0
            + 0.5 * math.exp(-0.9 * (speed + 2.6))
            + 0.1 * (clip + 0.5) ** 2
            + 0.09 * (warmup - 1.3) ** 2
        )

    return problem("failing_divergence", "synthetic", space, "minimize loss", value, tags="failing")


def failing_combinations() -> Problem:
    """Some combinations of choices always crash, others in a band; the optimum is beside it."""
    space = Space(
        Choice("backend", ["eager", "graph", "fused"]),
        Choice("layout", ["rows", "columns", "tiles"]),
        Int("tile", 1, 64, log=True),
        Float("share", 0.0, 1.0),
        Float("ratio", 0.1, 10.0, log=True),
        Int("streams", 1, 8),
    )

    def value(params: Params) -> float:
        tile = math.log2(float(params["tile"]))
        ratio = math.log2(float(params["ratio"]))
        share = float(params["share"])
        streams = float(params["streams"])
        fused = params["backend"] == "fused"
        if (fused and params["layout"] == "rows") or (params["backend"] == "graph" and streams > 4):
            raise TrialFailure("crashed")
        if tile + 3 * share + (1.0 if params["layout"] == "tiles" else 0.0) + 0.4 * streams > (
            7.0 if fused else 6.2
        ):
            raise TrialFailure("crashed")
        base = {"eager": 9.0, "graph": 7.5, "fused": 6.5}[str(params["backend"])]
        base += {"rows": 0.4, "columns": 0.6, "tiles": 0.0}[str(params["layout"])]
        return (
            base - 0.5 * tile - 1.8 * share - 0.35 * streams + 0.25 * (ratio - 0.6 * tile + 1) ** 2
        )

    return problem(
        "failing_combinations",
        "synthetic",
        space,
        "minimize seconds_per_step",
        value,
        tags="failing",
    )


def failing_deadline() -> Problem:
    """More work gives a better answer; what takes too long gives none."""
    space = Space(
        Int("rounds", 10, 5000, log=True),
        Int("depth", 1, 14),
        Float("rate", 1e-3, 1.0, log=True),
        Float("rows", 0.1, 1.0),
        Int("threads", 1, 16),
    )

    def value(params: Params) -> float:
        rounds = float(params["rounds"])
        depth = float(params["depth"])
        threads = float(params["threads"])
        rows = float(params["rows"])
        rate = float(params["rate"])
        seconds = 0.004 * rounds * rows * depth**1.5 * (1 / threads + 0.04 * threads)
        if seconds > 4.0:
            raise TrialFailure("timeout")
        fit = math.log10(rounds * rate) - 1.7
        return 0.2 + 0.12 * fit**2 + 0.1 * rate**0.5 + 0.006 * (depth - 6) ** 2 + 0.1 * (1 - rows)

    return problem("failing_deadline", "synthetic", space, "minimize error", value, tags="failing")


def problems() -> list[Problem]:
    return [failing_memory(), failing_divergence(), failing_combinations(), failing_deadline()]
