"""Switches of the run time that change how fast a model runs and in how much memory, not what it computes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, Final

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value, parameter_from_dict

from ._build import COMPUTES_THE_SAME, build, narrowed, wanted_choices
from .base import Declared, Dropped, Knob

Reasons = dict[Value, str]

_CHOICES: Final[Mapping[str, tuple[tuple[Value, ...], Value]]] = {
    "matmul_precision": (("highest", "high", "medium"), "highest"),
    "activation_checkpointing": (("none", "selective", "layers"), "none"),
    "compile": (("off", "default", "reduce-overhead"), "off"),
    "optimizer_implementation": (("for-loop", "foreach", "fused"), "fused"),
    "memory_format": (("contiguous", "channels_last"), "contiguous"),
    "loader_workers": ((0, 1), 0),
    "prefetch": ((2, 4, 8), 2),
    "cudnn_autotune": ((False, True), False),
    "compact_memory": ((False, True), False),
    "threads": ((), 1),
}
_ORDERED: Final = ("loader_workers", "prefetch", "threads")
_ONLY_IF_NAMED: Final = ("memory_format", "compact_memory")


class Runtime(Knob):
    """`matmul_precision` (of float32 products), `activation_checkpointing`, `compile` (mode of torch.compile),
    `optimizer_implementation`, `loader_workers` and `prefetch`, `cudnn_autotune`, `threads` (of a rank, on a CPU),
    and, only where they are named, `memory_format` (for models of images) and `compact_memory` (of a CPU).

    Options: one for each of these parameters (see `Knob`; True takes it as it is); `tune`, a list of those to take,
    all where it is absent; `cpus`, the cores of a worker slot. A parameter with a single value left is left out.
    `matmul_precision` should have `when={"precision": "fp32"}` where precision is tuned too.
    """

    name = "runtime"
    summary = "compilation, checkpointing, matrix products, loading and threads"
    keys = (*_CHOICES, "tune", "cpus")

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        declared = Declared()
        for name in self._names(options):
            parameter, dropped = self._parameter(name, hardware, options)
            if name == "prefetch":
                parameter = _under_loader(parameter, declared.parameters)
            declared.dropped += dropped
            if parameter is not None and parameter.size != 1:
                declared.parameters.append(parameter)
        return declared

    def _names(self, options: Mapping[str, Any]) -> list[str]:
        tune = options.get(
            "tune", [name for name in _CHOICES if name not in _ONLY_IF_NAMED or options.get(name)]
        )
        for name in tune:
            if name not in _CHOICES:
                raise SpaceError(f"knob 'runtime' can tune {', '.join(_CHOICES)}; got {name!r}")
        return [name for name in _CHOICES if name in tune]

    def _parameter(
        self, name: str, hardware: Hardware, options: Mapping[str, Any]
    ) -> tuple[Parameter | None, list[Dropped]]:
        if options.get(name, True) in (False, None):
            return None, []
        declared, default = _CHOICES[name]
        if name == "threads":
            declared, default = _thread_counts(hardware, options)
        choices = wanted_choices(options, name, declared)
        reasons = _REASONS[name](hardware, options) if name in _REASONS else {}
        dropped = [
            Dropped(name, choice, reasons[choice]) for choice in choices if choice in reasons
        ]
        kept = [choice for choice in choices if choice not in reasons]
        if not kept:
            return None, dropped
        affects = {"speed"} if name == "threads" else COMPUTES_THE_SAME
        adjusted = narrowed(options, name, kept)
        ordered = name in _ORDERED
        return build(
            name, adjusted, choices=kept, ordered=ordered, default=default, affects=affects
        ), dropped


def _under_loader(prefetch: Parameter | None, others: list[Parameter]) -> Parameter | None:
    """Prefetching is there only where a loader works ahead."""
    loader = next((other for other in others if other.name == "loader_workers"), None)
    if prefetch is None or loader is None or prefetch.when:
        return prefetch
    ahead = [count for count in loader.values() if count]
    return parameter_from_dict({**prefetch.to_dict(), "when": {"loader_workers": ahead}})


def _thread_counts(hardware: Hardware, options: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    cpus = min(int(options.get("cpus", 1)), hardware.num_cpus)
    counts = tuple(2**i for i in range(cpus.bit_length()) if 2**i < cpus)
    return (*counts, cpus), cpus


def _no_threads(hardware: Hardware, options: Mapping[str, Any]) -> Reasons:
    cpus = min(int(options.get("cpus", 1)), hardware.num_cpus)
    wanted = wanted_choices(options, "threads", ())
    return {n: f"a worker slot has {cpus} cores" for n in wanted if isinstance(n, int) and n > cpus}


def _no_matmul(hardware: Hardware, options: Mapping[str, Any]) -> Reasons:
    if hardware.gpus and hardware.lacks_precision("tf32"):
        return dict.fromkeys(("high", "medium"), f"tf32 {hardware.lacks_precision('tf32')}")
    return {}


def _no_compile(hardware: Hardware, options: Mapping[str, Any]) -> Reasons:
    compiler = os.environ.get("CXX") or "g++"
    if not hardware.gpus and shutil.which(compiler) is None and shutil.which("clang++") is None:
        return dict.fromkeys(
            ("default", "reduce-overhead"),
            f"torch.compile needs a C++ compiler, {compiler} is missing",
        )
    return {} if hardware.gpus else {"reduce-overhead": "records CUDA graphs and needs a CUDA GPU"}


def _no_compact(hardware: Hardware, options: Mapping[str, Any]) -> Reasons:
    return {True: "is about main memory, trials run on a GPU"} if hardware.gpus else {}


def _no_autotune(hardware: Hardware, options: Mapping[str, Any]) -> Reasons:
    return {} if hardware.gpus else {True: "cuDNN needs a CUDA GPU"}


_REASONS: Final[Mapping[str, Callable[[Hardware, Mapping[str, Any]], Reasons]]] = {
    "matmul_precision": _no_matmul,
    "compile": _no_compile,
    "cudnn_autotune": _no_autotune,
    "compact_memory": _no_compact,
    "threads": _no_threads,
}

__all__ = ["Runtime"]
