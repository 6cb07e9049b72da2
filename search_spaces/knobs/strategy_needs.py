"""The needs of a parallelism strategy, as data that the search space reads without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from search_spaces.errors import SpaceError


@dataclass(frozen=True)
class StrategyNeeds:
    """When a strategy can be used.

    Args:
        summary: what the strategy does, in a line.
        min_ranks, max_ranks: how many ranks it can use; at most 1 for a strategy of one process.
        devices: "cpu", "cuda" or both.
        backends: of `torch.distributed`, at least one of which must be there; empty for any.
        plan: fields of the workload's `ParallelPlan` that must not be empty.
        constraints: expressions over parameters, such as "num_heads % ranks == 0", that hold if the
            strategy is chosen.
        parameters: the strategy's own, as `Parameter.to_dict` writes them; active if it is chosen.
        rpc: whether torch must have been built with RPC.
    """

    summary: str = ""
    min_ranks: int = 2
    max_ranks: int | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    backends: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    rpc: bool = False

    @classmethod
    def of(cls, name: str, data: Any) -> StrategyNeeds:
        """The needs from a mapping or a data class with some of these fields.

        Raises:
            SpaceError: `data` is neither, or has an unknown field.
        """
        plain = asdict(data) if is_dataclass(data) and not isinstance(data, type) else data
        if not isinstance(plain, Mapping):
            raise SpaceError(
                f"strategy {name!r} is declared by a mapping or a data class, got {plain!r}"
            )
        for key in plain:
            if key not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                raise SpaceError(f"strategy {name!r} declares {key!r}; known: {known}")
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**fields)
