"""Decisions from evaluations: the end of training, a lower learning rate, weights to average."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from search_spaces.errors import UsageError
from workers.protocol import Metric

from .settings import Settings


class Selection:
    """Compares the evaluations on rank 0 by the optimised metric.

    Args:
        settings: `optimized_metric`, and the settings that need it.
        folder: of the trial; the best weights are kept in `folder`/best.
        metrics: of the workload; `optimized_metric` is one of them.
    """

    def __init__(self, settings: Settings, folder: Path, metrics: Sequence[Metric]) -> None:
        self.settings = settings
        self.folder = folder / "best"
        self.directions = {metric.name: metric.direction for metric in metrics}
        self.best: float | None = None
        self.stale = 0  # evaluations in a row without a new best
        self.scale = 1.0  # of the learning rate
        self.kept: list[tuple[float, int]] = []  # (value, update) of the kept weights, best first

    def see(self, metrics: Mapping[str, float]) -> None:
        """Count an evaluation; lower `scale` at a plateau.

        Raises:
            UsageError: the optimised metric is missing.
        """
        value = self._value(metrics)
        if value is None:
            return
        if math.isfinite(value) and (self.best is None or value > self.best):
            self.best = value
            self.stale = 0
            return
        self.stale += 1
        plateau = self.settings.plateau_evaluations
        if plateau and self.stale % plateau == 0:
            self.scale *= self.settings.plateau_factor

    @property
    def done(self) -> bool:
        """Whether so many evaluations as `patience` gave no new best."""
        return self.settings.patience is not None and self.stale >= self.settings.patience

    def keep(
        self, metrics: Mapping[str, float], update: int, weights: Mapping[str, Tensor]
    ) -> None:
        """Keep the weights if they are among the best `average_best`.

        Args:
            metrics: of the evaluation.
            update: of the weights.
            weights: in canonical form.
        """
        value = self._value(metrics)
        known = any(update == kept for _, kept in self.kept)
        if value is None or not math.isfinite(value) or known:
            return
        ranked = sorted([*self.kept, (value, update)], reverse=True)
        self.kept = ranked[: self.settings.average_best]
        if (value, update) in self.kept:
            self.folder.mkdir(exist_ok=True)
            whole = {name: tensor.contiguous() for name, tensor in weights.items()}
            save_file(whole, self._file(update))
        for _, worse in ranked[self.settings.average_best :]:
            self._file(worse).unlink(missing_ok=True)

    def average(self, update: int) -> dict[str, Tensor]:
        """Mean of the kept weights; tensors of whole numbers come from the best.

        The result is empty if no weights are kept, or only those that the model has now.

        Args:
            update: of the weights that the model has now.
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
        count = len(self.kept)
        return {n: (t / count).float() if t.is_floating_point() else t for n, t in total.items()}

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"best": self.best, "stale": self.stale, "scale": self.scale, "kept": self.kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.best = state["best"]
        self.stale = state["stale"]
        self.scale = state["scale"]
        self.kept = [(v, update) for v, update in state["kept"] if self._file(update).is_file()]

    def _value(self, metrics: Mapping[str, float]) -> float | None:
        """The optimised metric, negated if lower is better; None if none is set."""
        name = self.settings.optimized_metric
        if name is None:
            return None
        if name not in metrics:
            raise UsageError(f"optimized_metric {name!r} is none of {', '.join(sorted(metrics))}")
        if (direction := self.directions.get(name)) is None:
            raise UsageError(
                f"optimized_metric {name!r} has no direction: "
                "the workload's `metrics` must declare it"
            )
        return -metrics[name] if direction == "minimize" else metrics[name]

    def _file(self, update: int) -> Path:
        return self.folder / f"{update:08d}.safetensors"
