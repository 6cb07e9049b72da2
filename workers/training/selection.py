"""The best evaluations of a training, and the weights at them, which are averaged."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from search_spaces.errors import UsageError
from workers.files.folder import Folder
from workers.protocol import Metric

from .checkpoint import write_tensors
from .settings import Settings


class Selection:
    """Compares the evaluations on rank 0 by the optimised metric.

    Args:
        settings: `optimized_metric`, and the settings that need it.
        files: the trial's folder; the best weights are kept in its folder `best`.
        metrics: of the workload; `optimized_metric` is one of them.
    """

    def __init__(self, settings: Settings, files: Folder, metrics: Sequence[Metric]) -> None:
        self.settings = settings
        self.files = files / "best"
        self.directions = {metric.name: metric.direction for metric in metrics}
        self.kept: list[tuple[float, int]] = []  # (value, update) of the kept weights, best first

    def wants(self, metrics: Mapping[str, float], update: int) -> bool:
        """Whether `keep` would keep the weights of this evaluation."""
        value = self._value(metrics)
        known = any(update == kept for _, kept in self.kept)
        if value is None or not math.isfinite(value) or known:
            return False
        ranked = sorted([*self.kept, (value, update)], reverse=True)
        return (value, update) in ranked[: self.settings.average_best]

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
        if value is None or not self.wants(metrics, update):
            return
        ranked = sorted([*self.kept, (value, update)], reverse=True)
        self.kept = ranked[: self.settings.average_best]
        self.files.make()
        with self.files.open(_name(update), "wb") as file:
            write_tensors(file, weights)
        for _, worse in ranked[self.settings.average_best :]:
            self.files.unlink(_name(worse))

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
            weights = load_file(self.files.file(_name(update)))
            for name, tensor in weights.items():
                if name not in total:
                    total[name] = tensor.double() if tensor.is_floating_point() else tensor
                elif tensor.is_floating_point():
                    total[name] += tensor.double()
        count = len(self.kept)
        return {n: (t / count).float() if t.is_floating_point() else t for n, t in total.items()}

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"kept": self.kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.kept = [
            (v, update) for v, update in state["kept"] if self.files.is_file(_name(update))
        ]

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


def _name(update: int) -> str:
    return f"{update:08d}.safetensors"
