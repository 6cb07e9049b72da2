"""Replicas of a model, each of which is cut into pipeline stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from search_spaces.errors import UsageError
from workers.parallel.strategies.pipeline import Pipeline

__all__ = ["DataPipeline"]


class DataPipeline(Pipeline):
    """Data x pipeline: option `pipeline_degree` (2) stages, the batch is shared out among the replicas."""

    needs = replace(
        Pipeline.needs,
        summary="replicas of a model cut into stages, the batch shared out among them",
        min_ranks=4,
        constraints=("ranks % 2 == 0", "num_layers >= 2"),
    )

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """UsageError where the number of stages does not divide the number of ranks."""
        degree = int(options.get("pipeline_degree", 2))
        if degree < 1 or num_ranks % degree:
            raise UsageError(
                f"a pipeline degree of {degree} must divide the number of ranks, which is {num_ranks}"
            )
        return {"pipeline": degree, "data": num_ranks // degree}
