"""Whether parameters and optimizer state lie in main memory."""

from collections.abc import Mapping

from search_spaces.hardware import Hardware
from search_spaces.parameters import Value

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

CPU_OFFLOAD = Option(
    "cpu_offload",
    "fsdp keeps parameters, gradients and optimizer state in main memory",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)


class OffloadKnob(Knob):
    """`fsdp` with its shards in main memory, and each step of the optimizer on the CPU.

    Source: Ren et al. 2021 (https://arxiv.org/abs/2101.06840).
    """

    name = "offload"
    summary = "fsdp with its shards in main memory"
    options = (CPU_OFFLOAD,)
    on_request = (CPU_OFFLOAD,)
    conditions = {"cpu_offload": {"parallelism": ("fsdp", "hsdp")}}

    def lacks(self, option: Option, hardware: Hardware) -> Mapping[Value, str]:
        """See `Knob.lacks`."""
        return {} if hardware.gpus else {True: "trials run in main memory already"}
