"""Hybrid sharding: replicas of a model, each of which is sharded."""

from typing import ClassVar

from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import SHARD_DEGREE
from workers.parallel.strategies.fsdp import FSDP


class HSDP(FSDP):
    """`fsdp` within `shard_degree` ranks; replicas sum the gradients of their shards.

    Layers are gathered among few ranks, such as those of one machine, and each rank holds more than
    under `fsdp`. Source: Zhao et al. 2023, section 3.2.2 (https://arxiv.org/abs/2304.11277).
    """

    needs = StrategyNeeds(
        "replicas of a sharded model, the batch shared out among all ranks",
        min_ranks=4,
        constraints=("ranks % 2 == 0",),
        plan=("layers",),
    )
    degree = SHARD_DEGREE
    mesh_axes: ClassVar[tuple[str, ...]] = ("data", "shard")
