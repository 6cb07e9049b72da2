"""Numbers of an update that the host reads late, so that it does not wait for a GPU."""

from collections import deque
from typing import Any

import torch
from torch import Tensor


def reads_late(device: torch.device) -> bool:
    """Whether reading a number waits for the device."""
    return device.type == "cuda"


class LateNumbers:
    """Each update's share of the mean loss, and whether its gradients were finite.

    On a GPU the numbers of the newest update are still being computed, so they are read one update
    late: while the GPU computes, the host launches the next update. On CPUs they are read at once.

    Args:
        late: see `reads_late`.
    """

    def __init__(self, late: bool) -> None:
        self.late = late
        self._waiting: deque[tuple[Tensor, Any]] = deque()

    def add(self, share: Tensor, finite: Tensor) -> None:
        """Add the numbers of an update, scalars on its device."""
        both = torch.stack([share.detach().double(), finite.to(share.device).double()])
        event = None
        if both.is_cuda:
            pinned = torch.empty(2, dtype=both.dtype, pin_memory=True)
            both = pinned.copy_(both, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((both, event))

    def __len__(self) -> int:
        """How many updates were not taken yet."""
        return len(self._waiting)

    def take(self, *, newest: bool = False) -> list[tuple[float, bool]]:
        """The numbers of the updates since the last call, without the newest if reading is late.

        Args:
            newest: take those of the newest update too.
        """
        kept = 1 if self.late and not newest else 0
        found = []
        while len(self._waiting) > kept:
            both, event = self._waiting.popleft()
            if event is not None:
                event.synchronize()
            share, finite = both.tolist()
            found.append((share, finite > 0))
        return found
