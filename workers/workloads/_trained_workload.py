"""Base class of workloads that the project's trainer trains."""

from collections.abc import Mapping
from pathlib import Path

from workers.context import Context
from workers.workload import Trainable


class TrainedWorkload(Trainable):
    """Base class of workloads trained by gradient descent; implement the abstract methods."""

    def run(self, context: Context) -> Mapping[str, float]:
        """Train with `workers.training.trainer.train`."""
        from workers.training.trainer import train

        return train(self, context)

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights of the newest checkpoint, and the model as ONNX if possible."""
        from workers.export import export_trained

        return export_trained(self, trial, target)
