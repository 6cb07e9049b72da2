"""What all trials of a process share: compared before and after each trial, and put back.

Not compared: random generators, which each trial seeds anew, and modules.

torch is looked at only if it is loaded, so that a trial without it starts quickly.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.thread import _worker
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

THREAD_SECONDS: Final = 1.0  # for the threads of a trial to end
# Threads that a library starts once and keeps for the process, by the module of their function.
_LIBRARIES: Final = ("automl", "workers", "torch", "tqdm", "ray", "grpc", "joblib")
_ROUNDS: Final = 2  # a number format that follows its parent's shows only once that is put back
_ENVIRONMENT: Final = "environment variable "


class _Setting(NamedTuple):
    """A setting of the process; `write` is None if it cannot be put back."""

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None


class ProcessState:
    """The settings of this process before a trial. Use it in the thread that runs the trial."""

    def __init__(self) -> None:
        self._before = _values()
        self._threads = set(threading.enumerate())

    def learn(self) -> None:
        """Note the settings of a library that the trial has just loaded."""
        found = {k: v for k, v in _values().items() if not k.startswith(_ENVIRONMENT)}
        self._before = found | self._before

    def put_back(self) -> tuple[list[str], list[str]]:
        """Put everything back.

        Returns:
            What was different and is as before now, and what could not be put back, for a person.
        """
        changed: dict[str, None] = {}  # in order
        left = self._differences()
        for _ in range(_ROUNDS):
            changed |= dict.fromkeys(left)
            settings = _settings() if left else {}
            for name in left:
                with suppress(Exception):  # of any kind: it differs still
                    _write(name, settings, self._before)
            left = self._differences() if left else []
        return [name for name in changed if name not in left], left + self._left_threads()

    def _differences(self) -> list[str]:
        """The names of settings that are not as before, in the order in which to write them."""
        now = _values()
        names = [*now, *(name for name in self._before if name not in now)]
        known = {name for name in names if name in self._before or name.startswith(_ENVIRONMENT)}
        return [n for n in names if n in known and now.get(n) != self._before.get(n)]

    def _left_threads(self) -> list[str]:
        if self._new_threads():
            gc.collect()  # executors end their threads when they are freed
        until = time.monotonic() + THREAD_SECONDS
        for thread in self._new_threads():
            _join(thread, until)
        return [f"thread {thread.name!r}" for thread in self._new_threads()]

    def _new_threads(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._threads and not _is_of_library(thread) and not _waits(thread)
        ]


def _is_of_library(thread: threading.Thread) -> bool:
    """Whether a library keeps the thread for the process, or Python has not started it."""
    function = getattr(thread, "_target", None)
    modules = {type(thread).__module__, getattr(function, "__module__", None) or ""}
    packages = {name.partition(".")[0] for name in modules}
    return isinstance(thread, threading._DummyThread) or bool(packages & set(_LIBRARIES))


def _join(thread: threading.Thread, until: float) -> None:
    """Wait for the end of a thread, at most until this time of the monotonic clock."""
    while (left := until - time.monotonic()) > 0 and thread in threading.enumerate():
        with suppress(RuntimeError):  # another thread is about to start it
            thread.join(left)
        time.sleep(0.001)


def _waits(thread: threading.Thread) -> bool:
    """Whether it is a thread of an executor that has no work, such as of torch's compiler."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is _worker.__code__


def _values() -> dict[str, Any]:
    """The value of each setting by its name, and of each environment variable."""
    found: dict[str, Any] = {}
    for name, setting in _settings().items():
        try:
            found[name] = setting.read()
        except Exception as error:  # such as a folder that is gone, or formats that contradict
            found[name] = f"{type(error).__name__} is raised"
    return found | {f"{_ENVIRONMENT}{name}": value for name, value in os.environ.items()}


def _write(name: str, settings: dict[str, _Setting], before: dict[str, Any]) -> None:
    variable = name.removeprefix(_ENVIRONMENT)
    if variable == name:
        if write := settings[name].write:
            write(before[name])
    elif name in before:
        os.environ[variable] = before[name]
    else:
        del os.environ[variable]


def _settings() -> dict[str, _Setting]:
    """The settings of Python, and of torch if it is loaded, in the order in which to write them."""
    found = {
        "working folder": _Setting(os.getcwd, os.chdir),
        "umask": _Setting(_umask, os.umask),
        "sys.path": _Setting(lambda: list(sys.path), partial(sys.path.__setitem__, slice(None))),
        "recursion limit": _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    }
    if threading.current_thread() is threading.main_thread():
        found["timer"] = _Setting(lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, _end_timer)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            found[f"handler of signal {int(number)}"] = _Setting(
                partial(signal.getsignal, number), partial(signal.signal, number)
            )
    torch = sys.modules.get("torch")
    return found | (_torch_settings(torch) if hasattr(torch, "nn") else {})


def _umask() -> int:
    mask = os.umask(0o077)  # there is no way to read it alone
    os.umask(mask)
    return mask


def _end_timer(runs: bool) -> None:
    if not runs:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


_ATTRIBUTES: Final = (
    "backends.cudnn.allow_tf32",
    "backends.cuda.matmul.allow_tf32",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.benchmark_limit",
    "backends.cudnn.deterministic",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "utils.deterministic.fill_uninitialized_memory",
)
# Functions that read a setting and write it.
_FUNCTIONS: Final = (
    ("get_default_dtype", "set_default_dtype"),
    ("get_num_threads", "set_num_threads"),
    ("get_num_interop_threads", ""),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    ("is_grad_enabled", "set_grad_enabled"),
    ("is_inference_mode_enabled", ""),
    ("is_anomaly_enabled", "set_anomaly_enabled"),
    ("is_autocast_cache_enabled", "set_autocast_cache_enabled"),
    ("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    ("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    ("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
    ("backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp"),
    ("_C._get_sdp_priority_order", "_C._set_sdp_priority_order"),
    ("_C._get_mkldnn_enabled", "_C._set_mkldnn_enabled"),
    ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("_C._len_torch_dispatch_stack", ""),
    ("_C._len_torch_function_stack", ""),
)
_PARTS: Final = ("all", "matmul", "conv", "rnn")
_NUMBER_FORMATS: Final = (
    ("generic", "all"),
    *((backend, part) for backend in ("cuda", "mkldnn") for part in _PARTS),
)
_HOOKS: Final = (
    ("torch.nn.modules.module", "_global_"),
    ("torch.optim.optimizer", "_global_optimizer"),
)
# Loaded with the first compilation, maybe by the trial itself: compared with torch's own values.
_COMPILER_CONFIGS: Final = (
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch._inductor.config",
)


def _torch_settings(torch: Any) -> dict[str, _Setting]:
    found = {"torch.default_device": _Setting(torch.get_default_device, _device_setter(torch))}
    for read, write in _FUNCTIONS:
        with suppress(AttributeError):  # another release of torch
            found[f"torch.{read}"] = _Setting(
                attrgetter(read)(torch), attrgetter(write)(torch) if write else None
            )
    for path in _ATTRIBUTES:
        owner, _, name = path.rpartition(".")
        with suppress(AttributeError):
            module = attrgetter(owner)(torch)
            found[f"torch.{path}"] = _Setting(
                partial(getattr, module, name), partial(setattr, module, name)
            )
    for device in ("cpu", "cuda"):
        found[f"torch.autocast of {device}"] = _Setting(
            partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)
        )
        found[f"torch.autocast dtype of {device}"] = _Setting(
            partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)
        )
    # Parents first: a part without a format of its own has that of its parent.
    for key in _NUMBER_FORMATS:
        with suppress(AttributeError):
            found[f"torch fp32 precision of {' '.join(key)}"] = _Setting(
                partial(torch._C._get_fp32_precision_getter, *key),
                partial(torch._C._set_fp32_precision_setter, *key),
            )
    for path in _COMPILER_CONFIGS:
        found[path] = _Setting(partial(_config_changes, path), partial(_write_config, path))
    for path, prefix in _HOOKS:
        module = sys.modules[path]
        for name, hooks in vars(module).items():
            if name.startswith(prefix) and isinstance(hooks, dict):
                found[f"{path}.{name}"] = _Setting(partial(dict, hooks), partial(_replace, hooks))
    return found


def _device_setter(torch: Any) -> Callable[[Any], None]:
    """Sets the default device; for the CPU none, as at the start."""
    return lambda device: torch.set_default_device(None if device.type == "cpu" else device)


def _config_changes(path: str) -> dict[str, Any]:
    """The values of a configuration that are not those with which torch starts, by name."""
    if (config := sys.modules.get(path)) is None or not hasattr(config, "_config"):
        return {}  # not loaded, or the import of it has just begun
    values = config.get_config_copy()
    return {k: v for k, v in values.items() if k in config._config and v != _initial(config, k)}


def _initial(config: Any, name: str) -> Any:
    """The value with which torch starts: of the environment, else the declared one."""
    unset = sys.modules["torch.utils._config_module"]._UNSET_SENTINEL
    entry = config._config[name]
    given = (entry.env_value_force, entry.env_value_default, entry.default)
    return next(value for value in given if value is not unset)


def _write_config(path: str, before: dict[str, Any]) -> None:
    config: Any = sys.modules[path]
    for name in _config_changes(path).keys() | before.keys():
        setattr(config, name, before[name] if name in before else _initial(config, name))


def _replace(hooks: dict[Any, Any], before: dict[Any, Any]) -> None:
    hooks.clear()
    hooks.update(before)
