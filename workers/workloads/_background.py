"""Runs blocking work in a background thread while the trial's thread polls for stop requests."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

from workers.context import Context

T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]
_POLL_SECONDS = 0.2
# Abandoned work of an earlier attempt may still run, and shares the global random state.
_ALONE = threading.Lock()


class BackgroundThread:
    """Calls functions in one dedicated thread while polling for stop requests.

    If the trial has several ranks, it does not poll, so that the ranks stay together.

    Args:
        context: of the trial; it knows about stop requests.
        around: makes a context manager for everything in the thread, such as
            `torch.inference_mode`.
        daemon: whether the process may exit during abandoned work; torch kernels do not survive
            that.

    Example:
        with BackgroundThread(context) as background:
            graph = background(load)
    """

    def __init__(
        self,
        context: Context,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        daemon: bool = True,
    ) -> None:
        self.context = context
        self.around = around
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="background", daemon=daemon).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._work.put(None)

    def __call__(self, work: Callable[[], T]) -> T:
        """Call `work` in the thread and return its result.

        Raises:
            Stopped: the attempt must stop; the work runs on in the thread, and its result is lost.
            BaseException: any error of `work`.
        """
        future: Future[T] = Future()
        self._work.put((future, work))
        while not wait([future], _POLL_SECONDS).done:
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
