"""What a strategy needs, as data that the search space can read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Needs:
    """Where a strategy can be used.

    Args:
        summary: what it does, in a line.
        min_ranks: fewest ranks; 1 only for `single`.
        constraints: expressions over parameters that hold wherever the strategy is chosen.
        devices: kinds of device.
        backends: of `torch.distributed`, one of which must be there.
        plan: fields of the workload's `ParallelPlan` that must not be empty.
        parameters: of its own, as `Parameter.to_dict` writes them; active when it is chosen.
        rpc: whether torch must have been built with RPC.
    """

    summary: str
    min_ranks: int = 2
    constraints: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    backends: tuple[str, ...] = ("gloo", "nccl", "mpi")
    plan: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    rpc: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return asdict(self)
