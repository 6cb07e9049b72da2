"""Work that looks for no request to end: a thread does it, while the trial's own looks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from workers.context import Context

T = TypeVar("T")
_LOOK_SECONDS = 0.2
_ALONE = (
    threading.Lock()
)  # what an earlier attempt gave up still computes, and draws from the same random state


class Aside:
    """Calls functions in a thread of its own, always the same. Ranks of a gang stay together: they look for nothing.

    Args:
        around: makes a context manager in which that thread does everything, such as `torch.inference_mode`.
        daemon: whether the end of the process may cut off what was given up; torch's kernels do not bear that.

    Example:
        with Aside(context) as aside:
            graph = aside(load)
    """

    def __init__(
        self,
        context: Context,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        daemon: bool = True,
    ) -> None:
        self.context, self.around = context, around
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._serve, name="aside", daemon=daemon).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._work.put(None)

    def __call__(self, work: Callable[[], T]) -> T:
        """What `work` returns.

        Raises:
            Stopped: the attempt was asked to end; the work goes on to its end, and nobody waits for it.
            BaseException: whatever `work` raises.
        """
        future: Future[T] = Future()
        self._work.put((future, work))
        while not wait([future], _LOOK_SECONDS).done:
            if self.context.world_size == 1:
                self.context.check_stop()
        return future.result()

    def _serve(self) -> None:
        with self.around():
            while (item := self._work.get()) is not None:
                future, work = item
                try:
                    with _ALONE:
                        future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
