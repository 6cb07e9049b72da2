"""One rank has the whole model and the whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from search_spaces.errors import UsageError
from workers.parallel.base import ModuleStrategy
from workers.parallel.needs import Needs

__all__ = ["Single"]


class Single(ModuleStrategy):
    """No parallelism: what every other strategy is compared with."""

    needs = Needs("the whole model on one device", min_ranks=1)

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """One rank; UsageError for more."""
        if num_ranks != 1:
            raise UsageError(f"parallelism 'single' has one rank, got {num_ranks}")
        return {}

    def wrap(self, model: nn.Module) -> None:
        """Keep the model as it is."""
        self.model = self.plain = model

    def _replicated(self) -> bool:
        return True
