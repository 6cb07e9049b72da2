"""torch.compile in a warm process: what a trial has compiled does not reach the next one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_LOGGER: Final = "torch._dynamo.convert_frame"
_LIMIT: Final = "torch._dynamo hit config."  # begins the warning that torch logs at a limit


@contextmanager
def fresh_compiler(details: dict[str, Any]) -> Iterator[None]:
    """Count what is compiled inside, and forget it at the end.

    torch counts the graphs of a function in the process and stops compiling at a limit
    (`torch._dynamo.config.recompile_limit`). Without the reset the trials that follow on a warm
    worker would run uncompiled. The reset also frees the memory of recorded CUDA graphs.

    Args:
        details: gets `compiled_graphs`, and `compile_limit` if torch stopped compiling at a limit.
    """
    logger = logging.getLogger(_LOGGER)
    limits = _Limits()
    before = _num_graphs()
    logger.addHandler(limits)
    try:
        yield
    finally:
        logger.removeHandler(limits)
        if graphs := _num_graphs() - before:
            details["compiled_graphs"] = graphs
        if limits.message:
            details["compile_limit"] = limits.message
        if dynamo := sys.modules.get("torch._dynamo"):
            dynamo.reset()


class _Limits(logging.Handler):
    """Keeps the first warning about a limit of the compiler."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.message = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(_LIMIT) and not self.message:
            lines = [line.strip() for line in text.splitlines()[:3]]
            self.message = "; ".join(lines).removeprefix(_LIMIT)[:500]


def _num_graphs() -> int:
    """How many graphs this process has compiled so far."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
