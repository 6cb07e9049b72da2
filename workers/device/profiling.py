"""Traces of a trial's time, written by torch's profiler for TensorBoard and Perfetto."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workers.files.folder import Folder

FOLDER = "profile"  # in the trial's folder


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
        traces = files / FOLDER
        traces.make()
        name = f"rank-{rank}.pt.trace.json"
        traces.unlink(name)
        profiler.export_chrome_trace(str(traces.path / name))

    plan = schedule(wait=1, warmup=1, active=num_steps, repeat=1)
    with profile(schedule=plan, on_trace_ready=keep, profile_memory=memory) as profiler:
        yield profiler.step
