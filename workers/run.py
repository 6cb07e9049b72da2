"""Runs one rank of one attempt and turns every result or exception into an outcome.

torch is imported only if the attempt needs it: an objective that does not use it starts quickly.
"""

import importlib.util
import json
import platform
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from search_spaces.errors import StoreError
from search_spaces.hardware import memory_limit

from .context import Context, Stopped
from .failures import (
    MAX_NAME,
    MAX_TRACEBACK,
    NO_ROOM,
    described,
    failure_of,
    is_disk_full,
    raised_at,
)
from .functions.numbers import LARGEST, WrongReturn, numbers_of, returned, what_to_return
from .protocol import Cause, Ending, Outcome, StopRequest, lost

MIN_PEAK_BYTES: Final = 50_000_000  # of a function on the CPU, to be reported

Objective = Callable[["Context"], Any]


def run(context: Context, objective: Objective | None = None) -> Outcome:
    """Run one rank of an attempt to its end.

    Args:
        context: this rank's view of the attempt.
        objective: called with the context if the assignment names no workload.

    Returns:
        The outcome. Every exception but KeyboardInterrupt becomes a failure.
    """
    from .artifacts import ArtifactsUnreachable, Mirror

    begun, a = time.monotonic(), context.assignment
    context.preparing = _prepare
    facts: dict[str, Any] = {}
    typed: dict[str, Any] = {}  # further fields of the outcome
    mirror = Mirror(context)
    try:
        with _prepared_libraries(a.seed, a.threads, lambda torch: _set_up_gpu(context, torch)):
            context.assignment.files.make()
            with mirror:
                context.assignment.files.check()
                _ = context.resumed  # asked before this attempt writes files
                result = _run_measured(context, objective)
                attributes: dict[str, Any] = context.details.get("user_attrs", {})
                named = {n: value for n, value in attributes.items() if n in a.constrained}
                metrics = numbers_of(named) | returned(result, a.goals)
                if not getattr(objective, "checks_goals", False):
                    _check_goals(context, metrics, result)
        ending = context.stop.ending if context.stop else Ending.COMPLETED
        failure, message = None, context.message
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and some errors of torch are no Exception
        seconds = time.monotonic() - begun - mirror.seconds
        metrics, ending = {}, Ending.FAILED
        failure, message = failure_of(error)
        if isinstance(error, ArtifactsUnreachable):  # the trial is not to blame
            return lost(a, str(error), seconds=seconds)
        if is_disk_full(error):
            message = f"{NO_ROOM}: {message}"
            return lost(a, message, failure="preempted", seconds=seconds, cause=Cause.DISK)
        cause, status = getattr(error, "cause", None), getattr(error, "exit_status", None)
        known = isinstance(cause, Cause)  # of a command; another exception may have such a name too
        typed |= {"cause": cause, "exit_status": status} if known else {"cause": Cause.RAISED}
        typed["exception"] = type(error).__name__[:MAX_NAME]
        if not isinstance(error, StoreError):  # it names a link or a pipe in the trial's folder
            own = getattr(error, "shown_traceback", None)
            frames = error.__traceback__
            while frames is not None and frames.tb_frame.f_globals["__name__"] == __name__:
                frames = frames.tb_next  # those of this file tell a reader nothing
            whole = "".join(traceback.format_exception(type(error), error, frames))
            shown = whole if own is None else own
            facts["traceback"] = shown[-MAX_TRACEBACK:]
            typed["raised_at"] = raised_at(facts["traceback"])
    finally:
        context.close()
        _leave_loop(context, failed=True)
    details = {str(key): _plain(value) for key, value in context.details.items()}
    return Outcome(
        a.trial,
        a.attempt,
        ending,
        metrics,
        failure,
        "; ".join(filter(None, (message, mirror.message))),
        time.monotonic() - begun - mirror.seconds,
        _peak(context, objective),
        details | facts,
        failed_at=context.failed_at,
        pruned=context.pruned,
        memory_limit_bytes=_room(context),
        **typed,
    )


def _peak(context: Context, objective: Objective | None) -> int | None:
    """The peak memory of this rank; None if it was not measured.

    A function shares its process with the libraries that are loaded, so a small difference on the
    CPU tells what the allocator did, and not what the function needs. What a program takes of a
    GPU is not known here.
    """
    a, program = context.assignment, getattr(objective, "checks_goals", False)
    if context.memory is None or (program and context.memory.on_gpu):
        return None
    found: int = context.memory.bytes()
    shared = a.workload is None and not program and not context.memory.on_gpu
    if shared and found < MIN_PEAK_BYTES and "peak_memory_bytes" not in (*a.goals, *a.constrained):
        return None
    return found


def _plain(value: Any) -> Any:
    """A value as JSON data; one that is none becomes its description."""
    try:
        return json.loads(json.dumps(value, default=described))
    except Exception:  # such as a mapping that contains itself
        return described(value)


def _prepare(*arguments: Any) -> Any:
    from .own_loop.prepare import prepare  # imports torch, which the caller has

    return prepare(*arguments)


def _leave_loop(context: Context, *, failed: bool) -> None:
    """End the loop that `trial.prepare` has set up, if there is one."""
    if context.loop is not None:
        with suppress(Exception) if failed else nullcontext():
            context.loop.close(failed=failed)
        context.loop = None


def _set_up_gpu(context: Context, torch: Any) -> None:
    """Set the rank's device and its share of the memory; called once torch is loaded."""
    if not context.device.startswith("cuda"):
        return
    from .device.peak_memory import CONTEXT_BYTES

    a = context.assignment
    torch.cuda.set_device(context.device)
    free, total = torch.cuda.mem_get_info(context.device)
    # Under WSL the driver puts what does not fit into main memory, where an attempt would crawl.
    room = free if "microsoft" in platform.release().lower() else None
    limits = [limit for limit in (a.limits.memory_bytes, room) if limit]
    share = max(a.gpus - CONTEXT_BYTES / total, a.gpus / 2) if 0 < a.gpus < 1 else 1.0
    share = min(share, *(limit / total for limit in limits), 1.0)
    torch.cuda.set_per_process_memory_fraction(share, context.device)


def _room(context: Context) -> int:
    """Bytes that a rank may use here: of its GPU, or of main memory with the ranks beside it."""
    if not context.device.startswith("cuda"):
        return memory_limit()
    with suppress(RuntimeError, KeyError):  # of a GPU that fails; torch was not needed
        gpu = sys.modules["torch"].cuda.get_device_properties(context.device)
        return int(gpu.total_memory * min(1.0, context.assignment.gpus))
    return 0


def _run_measured(context: Context, objective: Objective | None) -> Any:
    """Call the objective or workload, and measure its memory.

    A failure is noted before the other ranks can see it.
    """
    from .device.peak_memory import PeakMemory

    a, context.memory = context.assignment, PeakMemory(context.device)
    # On a GPU the children are data loaders, or a program that nobody measures.
    measured = nullcontext() if context.memory.on_gpu else context.memory.with_children()
    with measured, context.meeting_ranks():
        try:
            if a.workload is not None:
                from .workloads import WORKLOADS

                kind = WORKLOADS.get(a.workload)
                return kind(a.params, a.data, a.fixed, seed=context.seed).run(context)
            assert objective is not None
            result = _call_objective(objective, context)
            _leave_loop(context, failed=False)
            return result
        except Stopped:  # such as one of `automl speed` that was not done
            return None
        except BaseException:
            if context.world_size > 1:
                context.failed_at = context.failed_at or time.time()
            raise
        finally:
            context.close()  # a thread that it has left behind may report until now


def _call_objective(objective: Objective, context: Context) -> Any:
    """Call an objective; one that has reported and raises Optuna's TrialPruned stops its trial.

    If nobody had asked it to stop, the trial has pruned itself, so it has no value. One that has
    not reported has failed: the suggester learns from it.
    """
    try:
        return objective(context)
    except Exception as error:
        if type(error).__name__ != "TrialPruned" or not context.reported:
            raise
        context.pruned = context.stop is None
        context.stop = context.stop or StopRequest.STOP
        context.message = context.message or f"it has raised TrialPruned {error}".rstrip()
        return None


def _check_goals(context: Context, metrics: Mapping[str, float], result: Any) -> None:
    """Raise WrongReturn if an objective has ended by itself, and has said nothing of a goal.

    An attempt that goes on from an earlier one, or that was asked to stop, may say nothing. What
    the controller measures itself (`LARGEST`) need not be said.
    """
    a, known = context.assignment, context.reported | metrics.keys()
    missing = [name for name in a.goals if name not in known and name not in LARGEST]
    if not missing or a.workload or a.resume or context.stop or context.rank > 0:
        return
    names, others = ", ".join(map(repr, missing)), ", ".join(sorted(known)) or "none"
    raise WrongReturn(
        "missing_metric",
        f"no metric {names} was reported; these were: {others}. "
        f"The objective returned {described(result)}. {what_to_return(a.goals)}",
    )


@contextmanager
def _prepared_libraries(
    seed: int, threads: int, torch_loaded: Callable[[Any], None]
) -> Iterator[None]:
    """Inside, `random`, NumPy and torch have this seed, and torch this number of CPU threads.

    Args:
        seed: of all three.
        threads: of torch on the CPU.
        torch_loaded: called with torch once it is loaded and set up, now or by an import inside.
    """

    def set_up(torch: Any) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(max(1, threads))
        torch_loaded(torch)

    def find_torch(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(finder)
        spec: Any = importlib.util.find_spec(name)  # by the other finders
        load = spec.loader.exec_module

        def load_and_set_up(module: Any) -> None:
            load(module)
            set_up(module)

        spec.loader.exec_module = load_and_set_up
        return cast(ModuleSpec, spec)

    random.seed(seed)
    np.random.seed(seed % 2**32)
    finder: Any = SimpleNamespace(find_spec=find_torch)
    if torch := sys.modules.get("torch"):
        set_up(torch)
    else:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with suppress(ValueError):  # torch is loaded
            sys.meta_path.remove(finder)
