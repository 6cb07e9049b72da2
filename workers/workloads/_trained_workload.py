"""A workload that the project's own trainer trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workers.workload import Trainable

if TYPE_CHECKING:
    from workers.context import Context


class TrainedWorkload(Trainable):
    """A workload that is trained by gradient descent on global batches: derive from it and write what is abstract."""

    def run(self, context: Context) -> Mapping[str, float]:
        """Train by `workers.training.trainer.train`."""
        from workers.training.trainer import train

        return train(self, context)

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """The weights of the newest checkpoint, and the model as ONNX where that can be written."""
        from workers.export import export_trained

        return export_trained(self, trial, target)
