"""Whether the same operations give the same bits on a GPU."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .base import COMPUTES_THE_SAME, Knob, Option

DETERMINISTIC = Option(
    "deterministic",
    "use only algorithms that give the same bits each time, if torch has them",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)


class DeterminismKnob(Knob):
    """Deterministic algorithms, which are slower on a GPU; a CPU's are deterministic already.

    An operation that has none computes as before, and torch warns in the trial's log.
    """

    name = "determinism"
    summary = "the same bits each time"
    options = (DETERMINISTIC,)
    on_request = (DETERMINISTIC,)

    @contextmanager
    def applied(self, values: Mapping[str, Any]) -> Iterator[None]:
        """See `Knob.applied`."""
        if not DETERMINISTIC.value(values):
            yield
            return
        import torch

        # cuBLAS reads it with the first product of a process; workers set it when they start.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        benchmark = torch.backends.cudnn.benchmark
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False  # which kernel wins would differ from run to run
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)
            torch.backends.cudnn.benchmark = benchmark
