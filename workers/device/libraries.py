"""Libraries in a warm process: seeds and threads for a trial, and a compiler that forgets it.

A library that is not loaded yet is set up when the trial imports it: to import torch for a trial
that does not use it would take seconds.
"""

import importlib.util
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

Setup = Callable[[Any], None]


@contextmanager
def prepared_libraries(
    seed: int, threads: int, torch_loaded: Setup = lambda torch: None
) -> Iterator[None]:
    """Inside, `random`, NumPy and torch have this seed, and torch this number of CPU threads.

    Args:
        seed: of all three.
        threads: of torch on the CPU.
        torch_loaded: called with torch once it is loaded and set up.
    """

    def set_up_torch(torch: Any) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(max(1, threads))
        torch_loaded(torch)

    random.seed(seed)
    setups: dict[str, Setup] = {
        "numpy": lambda numpy: numpy.random.seed(seed % 2**32),
        "torch": set_up_torch,
    }
    for name, setup in setups.items():
        if name in sys.modules:
            setup(sys.modules[name])
    finder = _SetupFinder({k: setup for k, setup in setups.items() if k not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _SetupFinder(MetaPathFinder):
    """Finds modules as usual, and sets some up right after their first import."""

    def __init__(self, setups: Mapping[str, Setup]) -> None:
        self._setups = dict(setups)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        setup = self._setups.pop(fullname, None)
        if setup is None:
            return None
        spec = importlib.util.find_spec(fullname)  # by the other finders
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_set_up(module: ModuleType) -> None:
            load(module)
            setup(module)

        spec.loader.exec_module = load_and_set_up  # type: ignore[method-assign]
        return spec


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


# Files of torch's compiler, and the functions in them that run without compiling anything.
_COMPILER: Final = {
    "torch/_dynamo/convert_frame.py": (),
    "torch/_inductor/compile_fx.py": ("run",),
    "torch/_inductor/select_algorithm.py": (),
}


def is_compiling() -> bool:
    """Whether a thread of this process compiles a graph; may be called in any thread."""
    if "torch._dynamo" not in sys.modules:
        return False
    return any(map(_compiles, sys._current_frames().values()))


def _compiles(frame: FrameType | None) -> bool:
    while frame is not None:
        path = "/".join(Path(frame.f_code.co_filename).parts[-3:])
        if path in _COMPILER and frame.f_code.co_name not in _COMPILER[path]:
            return True
        frame = frame.f_back
    return False


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
