"""Exam: trainings within a deadline on simulated systems whose every number is drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.suggesters.problems._deadline import (
    COSTS,
    QUALITY,
    SPEED,
    deadline,
    number,
    overflow,
)
from benchmarks.suggesters.problems._simulator import (
    Device,
    Learning,
    Run,
    Simulated,
    batch_efficiency,
    check_memory,
    rate_efficiency,
    step_seconds,
)
from benchmarks.suggesters.problems.base import Params, Problem
from benchmarks.suggesters.problems.exam_analytic import ROOT_SEED
from search_spaces import Choice, Float, Int, Space
from search_spaces.errors import TrialFailure

COUNT: Final = 5
LAYOUTS: Final = ("a", "b", "c", "d")
PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True)
class System:
    """A device, a model, a task and the best settings for them, all drawn from `rng`."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        draw = self.rng
        flops = 10 ** draw.uniform(12.7, 13.8)
        gains = np.cumprod([1.0, *draw.uniform(1.2, 2.5, 2), draw.uniform(0.95, 1.1)])
        fixed = {
            "device": Device(
                10 ** draw.uniform(9.8, 10.9),
                dict(zip(PRECISIONS, flops * gains, strict=True)),
                half_rate_tokens=10 ** draw.uniform(3, 4),
            ),
            "layers": int(draw.integers(4, 33)),
            "width": int(2 ** draw.integers(8, 11)),
            "layouts": dict(zip(LAYOUTS, draw.uniform(0.7, 1.3, len(LAYOUTS)), strict=True)),
            "compiled": draw.uniform(0.6, 1.1),
            "kept": draw.uniform(0.1, 0.3),
            "critical": 10 ** draw.uniform(3.5, 5),
            "rate": 10 ** draw.uniform(-4, -2),
            "power": draw.uniform(0.3, 1.0),  # of the batch size in the best rate
            "edge": draw.uniform(0.4, 0.9),
            "adam": 10 ** draw.uniform(-2.5, -1),
            "optima": draw.uniform(0.1, 0.6, 3),
            "weights": draw.uniform(0.3, 3.0, 3),
            "power_of_decay": draw.uniform(0.4, 0.9),
            "scale": 10 ** draw.uniform(1.8, 3),
            "rise": draw.choice([0.0, 0.05]),
        }
        object.__setattr__(self, "_fixed", fixed)

    def space(self) -> Space:
        """Of the knobs that every system has."""
        return Space(
            Int("batch_tokens", 256, 65536, log=True),
            Choice("accumulation", [1, 2, 4, 8], ordered=True, affects=QUALITY | SPEED),
            Choice("precision", list(PRECISIONS)),
            Choice("layout", list(LAYOUTS), affects=SPEED),
            Choice("checkpointing", [False, True], affects=COSTS),
            Choice("compile", [False, True], affects=SPEED),
            Choice("optimizer", ["sgd", "adam"]),
            Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}, affects=QUALITY),
            Float("learning_rate", 1e-6, 1.0, log=True, affects=QUALITY),
            Float("dropout", 0.0, 0.7, affects=QUALITY),
            Float("smoothing", 0.0, 0.7, affects=QUALITY),
            Float("augmentation", 0.0, 0.7, affects=QUALITY),
        )

    def resolve(self, params: Params) -> Simulated:
        """What a configuration costs, and how it learns."""
        fixed = self._fixed  # type: ignore[attr-defined]
        batch = number(params, "batch_tokens")
        adam = params["optimizer"] == "adam"
        kept, replay = (fixed["kept"], 1.0) if params["checkpointing"] else (1.0, 0.0)
        run = Run(
            12 * fixed["layers"] * fixed["width"] ** 2,
            fixed["layers"],
            fixed["width"],
            batch,
            10_000,
            int(params["accumulation"]),
            str(params["precision"]),
            kept=kept,
            replay=replay,
            state_bytes=16 if adam else 12,
            slowdown=fixed["layouts"][params["layout"]]
            * (fixed["compiled"] if params["compile"] else 1.0),
            overhead=0.002,
            activation_factor=30,
        )
        memory = check_memory(run, fixed["device"])
        step = batch * int(params["accumulation"])
        rate = number(params, "learning_rate")
        best = fixed["rate"] * (step / 10_000) ** fixed["power"]
        best *= 1.0 if adam else (1 - number(params, "momentum")) / fixed["adam"]
        overflow(params, rate / best, 2.5)
        efficiency = batch_efficiency(step, fixed["critical"]) * rate_efficiency(
            rate, best, edge=fixed["edge"]
        )
        settings = np.array([number(params, n) for n in ("dropout", "smoothing", "augmentation")])
        penalty = float(fixed["weights"] @ (settings - fixed["optima"]) ** 2)
        penalty += {"fp32": 0.0, "tf32": 0.0, "bf16": 0.005, "fp16": 0.004}[
            str(params["precision"])
        ]
        learning = Learning(
            1.0,
            5.0,
            efficiency * (1.0 if adam else 0.8),
            penalty,
            fixed["scale"],
            fixed["power_of_decay"],
            fixed["rise"],
            20 * fixed["scale"],
        )
        return Simulated(step_seconds(run, fixed["device"]), memory, learning)


def problems() -> list[Problem]:
    """Each trains for 300 steps of its middle configuration, in whole seconds."""
    found = []
    for index in range(COUNT):
        system = System(np.random.default_rng([ROOT_SEED, 100, index]))
        space = system.space()
        paces = []
        for params in space.sample(np.random.default_rng([ROOT_SEED, 101, index]), 200):
            try:
                paces.append(system.resolve(params).seconds)
            except TrialFailure:
                continue
        seconds = max(10, math.ceil(300 * float(np.median(paces))))
        goal = f"minimize loss within {seconds}s"
        found.append(
            deadline(f"exam_system_{index}", space, goal, system.resolve, tags="apart exam")
        )
    return found
