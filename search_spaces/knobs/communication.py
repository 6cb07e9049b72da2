"""How gradients travel between ranks."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

BUCKET_MEGABYTES = Option(
    "bucket_megabytes",
    "gradients that ddp reduces in one call",
    25,
    (1, 5, 25, 100),
    ordered=True,
    log=True,
    affects=COMPUTES_THE_SAME,
    unset=None,  # torch's own: a small first bucket, then 25 MB
)

REDUCTION = Option(
    "reduction_precision",
    "format in which fsdp sums gradients over ranks, under a half precision",
    "fp32",
    ("fp32", "half"),
)


class CommunicationKnob(Knob):
    """Buckets of `ddp` (Li et al. 2020, https://arxiv.org/abs/2006.15704), sums of `fsdp`.

    Small buckets are sent earlier during backward, large ones cost fewer calls. Sums in a half
    precision take half of the time to send, and lose digits.
    """

    name = "communication"
    summary = "buckets of ddp, and the format of sums of fsdp"
    options = (BUCKET_MEGABYTES, REDUCTION)
    on_request = (BUCKET_MEGABYTES, REDUCTION)
    conditions = {
        "bucket_megabytes": {"parallelism": ("ddp",)},
        "reduction_precision": {
            "parallelism": ("fsdp", "hsdp"),
            "precision": ("bf16", "fp16"),
        },
    }
