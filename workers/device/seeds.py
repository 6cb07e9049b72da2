"""Seeds and threads of an attempt, also in libraries that it imports later.

To import torch for a trial that does not use it would take seconds.
"""

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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
