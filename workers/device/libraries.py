"""Seeds, threads and profiles of an attempt, also in libraries that it imports later.

To import torch for a trial that does not use it would take seconds.
"""

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from workers.files.folder import Folder

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

    def set_up(torch: Any) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(max(1, threads))
        torch_loaded(torch)

    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        set_up(torch)
        yield
        return
    finder = _TorchFinder(set_up)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _TorchFinder(MetaPathFinder):
    """Finds torch as usual, and sets it up right after its import."""

    def __init__(self, set_up: Setup) -> None:
        self._set_up, self._asked = set_up, False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "torch" or self._asked:
            return None
        self._asked = True
        spec = importlib.util.find_spec(fullname)  # by the other finders
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_set_up(module: Any) -> None:
                load(module)
                self._set_up(module)

            spec.loader.exec_module = load_and_set_up  # type: ignore[method-assign]
        return spec


@contextmanager
def profiling(
    num_steps: int, files: Folder, rank: int = 0, *, memory: bool = True
) -> Iterator[Callable[[], None]]:
    """Trace `num_steps` steps, after one step that is skipped and one to warm up; none for 0.

    Args:
        num_steps: how many steps are traced.
        files: the trial's folder; the trace is `profile/rank-R.pt.trace.json` in it.
        rank: of this process.
        memory: whether allocations are traced as well.

    Yields:
        A function to call at the end of each step.
    """
    if num_steps < 1:
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    def keep(profiler: Any) -> None:
        traces = files / "profile"
        traces.make()
        name = f"rank-{rank}.pt.trace.json"
        traces.unlink(name)
        profiler.export_chrome_trace(str(traces.path / name))

    plan = schedule(wait=1, warmup=1, active=num_steps, repeat=1)
    with profile(schedule=plan, on_trace_ready=keep, profile_memory=memory) as profiler:
        yield profiler.step
