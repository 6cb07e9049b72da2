"""Replicas of a model, each of which is tensor-parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.errors import UsageError
from workers.parallel.needs import Needs
from workers.parallel.strategies.tensor import TensorParallel

__all__ = ["DataTensor"]


class DataTensor(TensorParallel):
    """Data x tensor: option `tensor_degree` (2) ranks share each product, the batch is shared out among the rest."""

    needs = Needs(
        "replicas of a tensor-parallel model, the batch shared out among them",
        min_ranks=4,
        constraints=("ranks % 2 == 0", "num_heads % 2 == 0"),
        plan=("tensor",),
    )

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """UsageError where the tensor degree does not divide the number of ranks."""
        degree = int(options.get("tensor_degree", 2))
        if degree < 1 or num_ranks % degree:
            raise UsageError(
                f"a tensor degree of {degree} must divide the number of ranks, which is {num_ranks}"
            )
        return {"tensor": degree, "data": num_ranks // degree}
