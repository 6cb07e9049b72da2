"""Synthetic problems with two goals and one constraint."""

from __future__ import annotations

import math

from benchmarks.suggesters.problems.base import Metrics, Params, Problem, problem
from search_spaces import Choice, Float, Int, Space


def front_compression() -> Problem:
    """Error against latency of a compressed model, with a bound on its size."""
    space = Space(
        Int("width", 16, 1024, log=True),
        Int("layers", 1, 16),
        Choice("bits", [4, 8, 16, 32], ordered=True),
        Float("sparsity", 0.0, 0.95),
        Float("rate", 1e-5, 1e-1, log=True),
    )

    def value(params: Params) -> Metrics:
        width = math.log2(float(params["width"]))
        layers = float(params["layers"])
        bits = float(params["bits"])
        kept = 1 - float(params["sparsity"])
        rate = math.log10(float(params["rate"])) + 3.1 + 0.1 * (width - 7)
        size = layers * 4**width * kept * bits / 8 / 1e6
        power = math.log2(layers * 4**width * kept**0.6)
        error = (
            0.05
            + 0.9 * 2 ** (-0.16 * (power - 4))
            + 0.02 * rate**2
            + {4: 0.06, 8: 0.012, 16: 0.002, 32: 0.0}[int(bits)]
        )
        latency = (
            0.2 * layers + 0.012 * layers * 2**width * (0.25 + bits / 32) * (0.3 + 0.7 * kept) / 8
        )
        return {"error": error, "latency": math.log10(latency), "megabytes": size}

    goals = ["minimize error", "minimize latency"]
    return problem(
        "front_compression",
        "synthetic",
        space,
        goals,
        value,
        constraints=["megabytes <= 1"],
        tags="multi",
    )


def front_widths() -> Problem:
    """Error against size of a network; a bound on its memory excludes most of the wide ones.

    The front extends to a width of 100, and only the smallest batches reach it.
    """
    space = Space(
        Int("width", 4, 512), Int("batch", 8, 512, log=True), Float("rate", 1e-5, 1e-1, log=True)
    )

    def value(params: Params) -> Metrics:
        width = float(params["width"])
        rate = math.log10(float(params["rate"])) + 3
        return {
            "error": width**-0.5 + 0.05 * rate**2,
            "size": width,
            "memory": width * float(params["batch"]),
        }

    goals = ["minimize error", "minimize size"]
    return problem(
        "front_widths",
        "synthetic",
        space,
        goals,
        value,
        constraints=["memory <= 800"],
        tags="multi",
    )


def front_curved() -> Problem:
    """A concave front without a disc, with mixed parameters.

    After Binh and Korn (1997) and Zitzler et al. (2000).
    """
    space = Space(
        Float("x", 0.0, 1.0),
        Float("y", 0.0, 1.0),
        Float("z", 0.0, 1.0),
        Int("n", 0, 10),
        Choice("kind", ["a", "b", "c"]),
    )

    def value(params: Params) -> Metrics:
        x, y, z = (float(params[name]) for name in "xyz")
        far = (
            1
            + 3 * (y - 0.3 - 0.4 * x) ** 2
            + 2 * (z - 0.5) ** 2
            + 0.02 * (int(params["n"]) - 7) ** 2
        )
        far += {"a": 0.3, "b": 0.0, "c": 0.1}[str(params["kind"])]
        first = x * far
        second = far * (1 - (x / far) ** 2)
        return {
            "first": first,
            "second": second,
            "margin": (first - 0.5) ** 2 + (second - 0.75) ** 2,
        }

    goals = ["minimize first", "minimize second"]
    return problem(
        "front_curved",
        "synthetic",
        space,
        goals,
        value,
        constraints=["margin >= 0.03"],
        tags="multi",
    )


def front_retrieval() -> Problem:
    """Recall and queries per second of an index, with limited memory and conditional settings."""
    space = Space(
        Choice("index", ["flat", "cells", "graph"]),
        Int("cells", 16, 4096, log=True, when={"index": "cells"}),
        Int("probes", 1, 128, log=True, when={"index": "cells"}),
        Int("degree", 4, 96, log=True, when={"index": "graph"}),
        Int("beam", 8, 512, log=True, when={"index": "graph"}),
        Int("code_bytes", 4, 512, log=True),
        Int("rerank", 1, 200, log=True),
    )
    goals = ["maximize recall", "maximize log_speed"]
    return problem(
        "front_retrieval",
        "synthetic",
        space,
        goals,
        _retrieval,
        constraints=["gigabytes <= 4"],
        tags="multi conditional",
    )


def _retrieval(params: Params) -> Metrics:
    code = math.log2(float(params["code_bytes"]))
    rerank = math.log2(float(params["rerank"]))
    exact = 1 - math.exp(-0.45 * (code - 0.5)) * 2 ** (-0.25 * rerank)
    memory = 10 * 2**code / 1000
    if params["index"] == "flat":
        found = 1.0
        work = 20.0
    elif params["index"] == "cells":
        cells = math.log2(float(params["cells"]))
        probes = math.log2(float(params["probes"]))
        found = 1 - math.exp(-0.35 * max(probes - 0.35 * (cells - 4), 0) - 0.3)
        work = math.log2(2**cells / 8 + 2 ** (20 - cells + min(probes, cells)))
    else:
        degree = math.log2(float(params["degree"]))
        beam = math.log2(float(params["beam"]))
        found = 1 - math.exp(-0.5 * (beam - 2.5) - 0.25 * (degree - 2))
        work = beam + 0.7 * degree + 2.0
        memory += 0.04 * 2**degree
    speed = 25 - math.log2(2 ** (work + 0.35 * code) + 2 ** (rerank + 5))
    return {"recall": exact * found, "log_speed": speed, "gigabytes": memory}


def problems() -> list[Problem]:
    return [front_compression(), front_widths(), front_curved(), front_retrieval()]
