"""Analytic models of a training: seconds of a step, peak memory, and loss by steps.

They follow first principles: arithmetic over throughput, bytes over bandwidth, the bubble of a
pipeline, Rajbhandari et al. (2020) for the memory of sharded states, Korthikanti et al. (2022) for
activations, McCandlish et al. (2018) for the progress of a step by batch size, and Kaplan et al.
(2020) for the loss by model size. Nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from automl.core.trial import ReportPoint
from benchmarks.suggesters.problems.base import Observation
from search_spaces.errors import TrialFailure

NUM_REPORTS = 10


@dataclass(frozen=True)
class Device:
    """One accelerator (or socket): rates in units per second, sizes in bytes."""

    memory: float
    flops: Mapping[str, float]
    bandwidth: float = 100e9  # between devices
    latency: float = 20e-6  # of one kernel or message
    half_rate_tokens: float = 1024.0  # tokens of a micro-batch that reach half of the peak


@dataclass(frozen=True)
class Run:
    """A configuration of a training of a stack of layers.

    Args:
        weights: number of parameters.
        layers: of the stack.
        width: of a layer.
        tokens: of a micro-batch on one data-parallel rank.
        vocabulary: number of outputs of a token.
        accumulation: micro-batches of a step.
        precision: a key of `Device.flops`.
        data: data-parallel degree.
        tensor: tensor-parallel degree.
        stages: pipeline-parallel degree.
        microbatches: of the pipeline.
        sharded: whether states and weights are spread over the data ranks.
        kept: share of the activations that is kept, 1 without checkpointing.
        replay: extra compute for the others.
        state_bytes: bytes of a weight with its gradient and optimizer states.
        slowdown: factor on compute.
        overhead: seconds of a step.
        activation_factor: activations of a layer for each token and unit of width.
    """

    weights: float
    layers: int
    width: float
    tokens: float
    vocabulary: float = 0.0
    accumulation: int = 1
    precision: str = "fp32"
    data: int = 1
    tensor: int = 1
    stages: int = 1
    microbatches: int = 1
    sharded: bool = False
    kept: float = 1.0
    replay: float = 0.0
    state_bytes: float = 16.0
    slowdown: float = 1.0
    overhead: float = 0.0
    activation_factor: float = 18.0

    @property
    def value_bytes(self) -> float:
        return 4.0 if self.precision in ("fp32", "tf32") else 2.0


def step_seconds(run: Run, device: Device) -> float:
    """Seconds of one optimizer step: compute, the pipeline's bubble, communication, launches."""
    micro = run.tokens / run.microbatches
    rate = device.flops[run.precision] * micro / (micro + device.half_rate_tokens)
    compute = (
        (6 + 2 * run.replay) * run.weights * micro / (run.tensor * run.stages) / rate * run.slowdown
    )
    launches = 30 * run.layers / run.stages * device.latency * (1 + run.replay / 3)
    exchange = 0.0
    if run.tensor > 1:
        share = 2 * (run.tensor - 1) / run.tensor
        exchange = (
            4
            * run.layers
            / run.stages
            * (micro * run.width * run.value_bytes * share / device.bandwidth + device.latency)
        )
    pipeline = (run.microbatches + run.stages - 1) * (max(compute, launches) + exchange)
    pipeline += 2 * (run.stages - 1) * run.microbatches * device.latency
    gradients = (
        run.weights
        / (run.tensor * run.stages)
        * run.value_bytes
        * 2
        * (run.data - 1)
        / run.data
        / device.bandwidth
    )
    if run.sharded:
        gradients *= 1 + 0.5 * run.accumulation
    update = (
        run.weights
        * run.state_bytes
        / (run.tensor * run.stages * (run.data if run.sharded else 1))
        / 1e12
    )
    hidden = 0.6 * min(gradients, pipeline)
    return run.accumulation * pipeline + gradients - hidden + update + run.overhead


def peak_memory(run: Run, device: Device) -> float:
    """Bytes on the fullest device: weights and states, activations in flight, logits, workspace."""
    share = run.tensor * run.stages * (run.data if run.sharded else 1)
    states = run.weights * run.state_bytes / share
    gathered = 2 * run.weights / max(run.layers, 1) * run.value_bytes if run.sharded else 0.0
    micro = run.tokens / run.microbatches
    in_flight = min(run.stages, run.microbatches)
    layer = micro * run.width * run.value_bytes * run.activation_factor / run.tensor
    activations = layer * run.layers / run.stages * run.kept * in_flight + (
        layer if run.kept < 1 else 0.0
    )
    logits = micro * run.vocabulary * 6 / run.tensor
    return 0.1e9 + states + gathered + activations + logits


@dataclass(frozen=True)
class Learning:
    """How the loss falls with steps.

    Args:
        floor: loss of an infinitely large model that is trained for ever.
        gain: the most that training can reduce the loss.
        efficiency: progress of a step, 1 for the best batch size and learning rate.
        penalty: loss above the floor, due to regularisation, size and precision.
        scale: steps until half of the gain at efficiency 1.
        power: of the decay.
        rise: overfitting, loss that is added beyond `patience` steps.
        patience: steps until overfitting starts.
    """

    floor: float
    gain: float
    efficiency: float
    penalty: float
    scale: float
    power: float = 0.6
    rise: float = 0.0
    patience: float = math.inf

    def loss(self, steps: float) -> float:
        progress = steps * self.efficiency
        fitted = self.gain * (1 + progress / self.scale) ** -self.power
        return (
            self.floor
            + self.penalty
            + fitted
            + self.rise * math.log(max(1.0, progress / self.patience))
        )

    def steps_to(self, target: float, limit: float) -> float | None:
        """The first step with a loss of at most `target`; None if it is beyond `limit`."""
        grid = np.geomspace(1, max(limit, 2), 400)
        reached = [steps for steps in grid if self.loss(float(steps)) <= target]
        return float(reached[0]) if reached else None


def batch_efficiency(batch: float, critical: float) -> float:
    """Progress of a step by batch size, 1 for an infinite batch (McCandlish et al., 2018)."""
    return 1 / (1 + critical / batch)


def rate_efficiency(
    rate: float, best: float, *, sharpness: float = 1.2, edge: float = 0.7
) -> float:
    """Progress by learning rate; beyond `edge` decades above the best one it diverges.

    Raises:
        TrialFailure: `non_finite`.
    """
    decades = math.log10(rate / best)
    if decades > edge:
        raise TrialFailure("non_finite")
    return math.exp(-sharpness * decades**2 * (2.0 if decades > 0 else 1.0))


@dataclass(frozen=True)
class Noise:
    """Standard deviations: of the loss (absolute), and of seconds and bytes (relative)."""

    loss: float = 0.01
    seconds: float = 0.005
    memory: float = 0.0005


@dataclass(frozen=True)
class Simulated:
    """One configuration, resolved: what it costs and how it learns."""

    seconds: float
    memory: float
    learning: Learning
    details: Mapping[str, float] = field(default_factory=dict)


def check_memory(run: Run, device: Device) -> float:
    """Peak memory in bytes.

    Raises:
        TrialFailure: `out_of_memory`.
    """
    used = peak_memory(run, device)
    if used > device.memory:
        raise TrialFailure("out_of_memory")
    return used


def report_steps(seconds: float, pace: float) -> list[int]:
    """The steps at which a run of `seconds` reports, with `pace` seconds for a step."""
    steps = {int(seconds * (i + 1) / NUM_REPORTS / pace) for i in range(NUM_REPORTS)}
    return sorted(step for step in steps if step > 0)


def curve(
    simulated: Simulated,
    seconds: float,
    rng: np.random.Generator,
    noise: Noise,
    *,
    metric: str = "loss",
    sign: float = 1.0,
) -> Observation:
    """Train for `seconds`: reports at equal distances in time, metrics at the end.

    A run that is too slow for its first step fails with `timeout`.
    """
    pace = simulated.seconds * float(np.exp(noise.seconds * rng.standard_normal()))
    memory = simulated.memory * float(np.exp(noise.memory * rng.standard_normal()))
    wobble = 0.0
    points = []
    for step in report_steps(seconds, pace):
        # Stationary noise with correlated neighbours.
        wobble = 0.6 * wobble + 0.8 * noise.loss * float(rng.standard_normal())
        value = sign * (simulated.learning.loss(step) + wobble)
        points.append(ReportPoint(step, {metric: value}, step * pace))
    if not points:
        return Observation(failure="timeout", peak_memory_bytes=int(memory))
    metrics = {**points[-1].metrics, "step_seconds": pace, "peak_memory_bytes": memory}
    return Observation(metrics, tuple(points), peak_memory_bytes=int(memory))
