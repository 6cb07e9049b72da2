"""The GPUs of a sweep whose trials run on this machine: locked before its workers start."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from automl.core import SweepSpec
from automl.dispatch._make import local_slots
from automl.dispatch.gpus import GpuLocks, SharedGpu, shared_gpus
from automl.errors import UsageError
from workers.runtime.devices import VARIABLE, gpus_of_slots

from .journal import Journal
from .shutdown import Shutdown

ASK_SECONDS: Final = 0.5  # while the sweep waits: between two looks at the locks
LOOK_SECONDS: Final = 10.0  # and between two looks at what other programs use


class GpuShare:
    """Locks the GPUs of a sweep until it ends, and knows who else uses them.

    Args:
        spec: of the sweep.
        locks: of the sweep; if they are disabled, no GPU is locked.
        serial: whether a trial runs at a time, so that the GPUs of one slot are enough.
        look: returns the GPUs that this process may use.
    """

    def __init__(
        self,
        spec: SweepSpec,
        locks: GpuLocks,
        *,
        serial: bool,
        look: Callable[[], list[SharedGpu]] = shared_gpus,
    ) -> None:
        self._enabled = locks.enabled and spec.resources.gpus > 0
        self._locks = locks
        self._look = look
        self._workers = None if spec.workers is None else local_slots(spec)
        self._each = spec.resources.gpus
        self._serial = serial
        self._chosen: tuple[str, ...] = ()

    def acquire(self, journal: Journal, shutdown: Shutdown) -> bool:
        """Lock the GPUs; wait if others have them, and say for whom.

        Returns:
            False if the sweep was asked to end while it waited.

        Raises:
            UsageError: this process may use fewer GPUs than the workers need.
        """
        if not self._enabled or not (gpus := self._look()):
            return True  # without nvidia-smi the dispatcher finds the GPUs by itself
        looked = time.monotonic()
        most, least = self._needed(gpus)
        while not self._take(most, least, gpus, journal):
            journal.flush()
            if shutdown.ends():
                return False
            time.sleep(ASK_SECONDS)
            if time.monotonic() - looked > LOOK_SECONDS:
                gpus = self._look() or gpus
                looked = time.monotonic()
        return True

    @contextmanager
    def visible(self) -> Iterator[None]:
        """Inside, workers that start, or a Ray, see the locked GPUs only."""
        if not self._chosen:
            yield
            return
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = ",".join(self._chosen)
        try:
            yield
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before

    def _needed(self, gpus: list[SharedGpu]) -> tuple[int, int]:
        """How many GPUs the sweep takes at most, and at least."""
        one = gpus_of_slots(1, self._each)
        most = gpus_of_slots(self._workers, self._each) if self._workers else len(gpus)
        least = one if self._serial or not self._workers else most
        if least > len(gpus):
            raise UsageError(
                f"{self._workers or 1} workers of {self._each:g} GPUs need {least} GPUs, and this "
                f"process may use {len(gpus)} ({', '.join(gpu.uuid for gpu in gpus)}): "
                "ask for fewer workers"
            )
        return most, least

    def _take(self, most: int, least: int, gpus: list[SharedGpu], journal: Journal) -> bool:
        occupied = {gpu.uuid: _uses([gpu]) for gpu in gpus if gpu.users}
        visible = [gpu.uuid for gpu in gpus]
        self._chosen = tuple(self._locks.take(most, visible, occupied, least=least))
        journal.waits_for = self._locks.waits_for
        if self._chosen and occupied:
            journal.note(
                "gpus", f"passed over, since others use them: {'; '.join(occupied.values())}"
            )
        return bool(self._chosen)


def _uses(gpus: list[SharedGpu]) -> str:
    return "; ".join(f"{gpu.uuid} by {', '.join(gpu.users[:3])}" for gpu in gpus)
