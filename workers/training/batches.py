"""A rank's shares of all batches from any position on, prepared ahead in a thread if wanted."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from search_spaces.errors import DataError
from workers.data.batch import Batch, BatchShare
from workers.workload import Trainable


@dataclass(frozen=True)
class BatchPosition:
    """The epoch of a batch and its index in the epoch, both from 0."""

    epoch: int = 0
    index: int = 0


def shares(
    workload: Trainable,
    start: BatchPosition,
    max_epochs: int | None,
    share_of: Callable[[Batch], BatchShare],
) -> Iterator[tuple[BatchPosition, BatchShare]]:
    """This rank's share of every batch from `start` on, with the position of the batch.

    Args:
        workload: makes the batches.
        start: the first position.
        max_epochs: None for no end.
        share_of: see `Strategy.share_of`.

    Raises:
        DataError: an epoch has no batch.
    """
    epoch = start.epoch
    skip = start.index
    while max_epochs is None or epoch < max_epochs:
        index = 0
        for index, batch in enumerate(workload.train_batches_from(epoch, skip), skip + 1):
            yield BatchPosition(epoch, index - 1), share_of(batch)
        if index == 0 and skip == 0:
            raise DataError(f"workload {workload.name!r} has no training batch in epoch {epoch}")
        epoch += 1
        skip = 0


class Upload:
    """An iterator that copies the shares of another one to a GPU, on a stream of its own.

    The copies of the next batches run while the GPU computes. They are made from page-locked
    memory: from other memory a copy makes the host wait, whatever `non_blocking` says. `next` may
    run in any thread; `ready` must be called in the thread that computes.

    Args:
        source: shares on the CPU.
        device: the GPU.
    """

    def __init__(
        self, source: Iterator[tuple[BatchPosition, BatchShare]], device: torch.device
    ) -> None:
        self._source = source
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[tuple[BatchPosition, BatchShare]]:
        return self

    def __next__(self) -> tuple[BatchPosition, BatchShare]:
        position, share = next(self._source)
        with torch.cuda.stream(self._stream):  # of this thread, and with it the device
            copied = share.each(self._copied)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return position, replace(copied, ready=partial(self._ready, copied, event))

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _ready(self, share: BatchShare, event: Any) -> None:
        """Let what is launched from now on wait for the copies; the host does not wait."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for part in share.parts:
            for tensor in part.values():
                tensor.record_stream(current)  # else its memory could be used again too early


@contextmanager
def ahead(
    source: Iterator[tuple[BatchPosition, BatchShare]], device: torch.device, depth: int
) -> Iterator[Iterator[tuple[BatchPosition, BatchShare]]]:
    """The same shares, copied if the device is a GPU.

    Args:
        source: shares on the CPU.
        device: that computes.
        depth: how many a thread prepares ahead; 0 for no thread.
    """
    copied = Upload(source, device) if device.type == "cuda" else source
    if not depth:
        yield copied
        return
    with ThreadPoolExecutor(1, "batches") as pool:
        waiting = deque(pool.submit(next, copied, None) for _ in range(depth))
        try:
            yield iter(partial(_next, pool, copied, waiting), None)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _next(pool: ThreadPoolExecutor, source: Iterator[Any], waiting: deque[Future[Any]]) -> Any:
    """The next item, and let the thread prepare one more; an error is raised at its position."""
    waiting.append(pool.submit(next, source, None))
    return waiting.popleft().result()
