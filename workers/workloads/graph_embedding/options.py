"""How long and in what portions a graph is trained, and where training stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TrainingPosition:
    """Where training stands: the next update is `batch` of pair `pair` of round `round` of epoch `epoch`."""

    epoch: int = 0
    round: int = 0
    pair: int = 0
    batch: int = 0


@dataclass(frozen=True)
class TrainOptions:
    """How long and in what portions is trained.

    Args:
        evaluate_epochs: epochs between reports; evaluate_edges: at most so many validation edges, 0 for all.
        checkpoint_seconds: between checkpoints; test: whether test edges are ranked at the end.
    """

    dimension: int
    state_size: int
    partitions: int
    batch_size: int
    learning_rate: float
    max_epochs: int
    evaluate_epochs: int
    evaluate_edges: int
    checkpoint_seconds: float
    initial_scale: float
    test: bool
