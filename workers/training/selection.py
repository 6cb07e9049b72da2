"""What the evaluations of a training decide: when to end it, a lower learning rate, and which weights to average."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from search_spaces.errors import UsageError
from workers.protocol import Metric

if TYPE_CHECKING:
    from .settings import Settings


class Selection:
    """Looks at the optimised metric of each evaluation, on rank 0.

    Args:
        settings: `optimized_metric`, and what follows from it.
        folder: of the trial; the best weights are kept in `folder`/best.
        metrics: what the workload declares; `optimized_metric` is one of them.
    """

    def __init__(self, settings: Settings, folder: Path, metrics: Sequence[Metric]) -> None:
        self.settings = settings
        self.folder = folder / "best"
        self.directions = {metric.name: metric.direction for metric in metrics}
        self.best: float | None = None
        self.stale, self.scale = 0, 1.0
        self.kept: list[
            tuple[float, int]
        ] = []  # value and update of the weights that are kept, best first

    def see(self, metrics: Mapping[str, float]) -> None:
        """Count an evaluation; lowers `scale` at a plateau.

        Raises:
            UsageError: the evaluation gave no such metric.
        """
        value = self._value(metrics)
        if value is None:
            return
        if math.isfinite(value) and (self.best is None or value > self.best):
            self.best, self.stale = value, 0
            return
        self.stale += 1
        if (
            self.settings.plateau_evaluations
            and self.stale % self.settings.plateau_evaluations == 0
        ):
            self.scale *= self.settings.plateau_factor

    @property
    def done(self) -> bool:
        """Whether patience is over."""
        return self.settings.patience is not None and self.stale >= self.settings.patience

    def keep(
        self, metrics: Mapping[str, float], update: int, weights: Mapping[str, Tensor]
    ) -> None:
        """Keep the weights where they are among the best `average_best`; they are in canonical form."""
        value = self._value(metrics)
        if (
            value is None
            or not math.isfinite(value)
            or any(update == known for _, known in self.kept)
        ):
            return
        ranked = sorted([*self.kept, (value, update)], reverse=True)
        best, rest = ranked[: self.settings.average_best], ranked[self.settings.average_best :]
        if (value, update) in best:
            self.folder.mkdir(exist_ok=True)
            save_file(
                {name: tensor.contiguous() for name, tensor in weights.items()}, self._file(update)
            )
        for _, worse in rest:
            self._file(worse).unlink(missing_ok=True)
        self.kept = best

    def average(self, update: int) -> dict[str, Tensor]:
        """Mean of the weights that are kept, whole numbers those of the best.

        Args:
            update: of the weights that the model has; empty where these alone are kept, or none.
        """
        total: dict[str, Tensor] = {}
        if [known for _, known in self.kept] == [update]:
            return total
        for _, update in self.kept:
            for name, tensor in load_file(self._file(update)).items():
                if name not in total:
                    total[name] = tensor.double() if tensor.is_floating_point() else tensor
                elif tensor.is_floating_point():
                    total[name] += tensor.double()
        return {
            n: (t / len(self.kept)).float() if t.is_floating_point() else t
            for n, t in total.items()
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"best": self.best, "stale": self.stale, "scale": self.scale, "kept": self.kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.best, self.stale, self.scale = state["best"], state["stale"], state["scale"]
        self.kept = [
            (value, update) for value, update in state["kept"] if self._file(update).is_file()
        ]

    def _value(self, metrics: Mapping[str, float]) -> float | None:
        """The metric, turned so that more is better; None where none was named."""
        name = self.settings.optimized_metric
        if name is None:
            return None
        if name not in metrics:
            raise UsageError(f"optimized_metric {name!r} is none of {', '.join(sorted(metrics))}")
        if (direction := self.directions.get(name)) is None:
            raise UsageError(
                f"optimized_metric {name!r} has no direction: the workload's `metrics` must declare it"
            )
        return -metrics[name] if direction == "minimize" else metrics[name]

    def _file(self, update: int) -> Path:
        return self.folder / f"{update:08d}.safetensors"
