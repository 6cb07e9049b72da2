"""Options of the training loop, and the position of training."""

from dataclasses import dataclass


@dataclass
class TrainingPosition:
    """The position of training: the next batch of a pair, in a round, in an epoch."""

    epoch: int = 0
    round: int = 0
    pair: int = 0
    batch: int = 0


@dataclass(frozen=True)
class TrainOptions:
    """Options of the training loop.

    Args:
        evaluate_epochs: epochs between reports.
        evaluate_edges: maximum number of validation edges; 0 for all.
        checkpoint_seconds: time between checkpoints.
        test: whether test edges are ranked at the end.
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
