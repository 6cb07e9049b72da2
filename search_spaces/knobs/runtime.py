"""Switches that change the speed and the memory of training, but not what is computed."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value, parameter_from_dict

from .base import Knob, KnobSpace
from .option import COMPUTES_THE_SAME, DroppedValue, Option

MATMUL_PRECISION = Option(
    "matmul_precision",
    "library of float32 matrix products on CPUs; on GPUs precision decides",
    "highest",
    ("highest", "high", "medium"),
    affects=COMPUTES_THE_SAME,
    unset=None,  # "high" under tf32, otherwise "highest"
)
ACTIVATION_CHECKPOINTING = Option(
    "activation_checkpointing",
    "activations computed again in backward: none, all but matrix products, or whole layers",
    "none",
    ("none", "selective", "layers"),
    affects=COMPUTES_THE_SAME,
)
COMPILE = Option(
    "compile",
    "mode of torch.compile; reduce-overhead and max-autotune record CUDA graphs, "
    "cudagraphs records them and compiles nothing",
    "off",
    ("off", "default", "reduce-overhead"),
    affects=COMPUTES_THE_SAME,
    on_request=("max-autotune", "cudagraphs"),
)
RECORDS_GRAPHS: Final = ("reduce-overhead", "max-autotune", "cudagraphs")  # modes of `compile`
MEMORY_FORMAT = Option(
    "memory_format",
    "order of the dimensions of images in memory",
    "contiguous",
    ("contiguous", "channels_last"),
    affects=COMPUTES_THE_SAME,
)
LOADER_WORKERS = Option(
    "loader_workers",
    "1 prepares batches in a thread of their own, 0 in the training thread",
    0,
    (0, 1),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    unset=None,  # 1 on a GPU if a rank has a core to spare
)
PREFETCH = Option(
    "prefetch",
    "batches that the thread prepares ahead",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)
COMPACT_MEMORY = Option(
    "compact_memory",
    "return every large block to the system at once (CPU); 5 to 15% slower",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)
THREADS = Option(
    "threads",
    "CPU threads of a rank; by default the cores of its slot",
    1,
    ordered=True,
    affects=frozenset({"speed"}),
    unset=None,
)
_GRAPHS: Final = "records CUDA graphs and needs a CUDA GPU"
_ONLY_IF_NAMED: Final = (MEMORY_FORMAT, COMPACT_MEMORY)


class RuntimeKnob(Knob):
    """Compilation, recomputed activations, matrix products, loading of batches, and threads.

    `memory_format` and `compact_memory` are left out unless they are named. A parameter with a
    single value left is left out, unless its values were named. If precision is tuned too,
    adjust `matmul_precision` by `when={"precision": "fp32"}`.

    Adjustments: `tune` lists the parameters to take; `cpus` is the number of cores of a worker
        slot.
    """

    name = "runtime"
    summary = "compilation, checkpointing, matrix products, loading and threads"
    options = (
        MATMUL_PRECISION,
        ACTIVATION_CHECKPOINTING,
        COMPILE,
        MEMORY_FORMAT,
        LOADER_WORKERS,
        PREFETCH,
        COMPACT_MEMORY,
        THREADS,
    )
    keys = ("tune", "cpus")
    on_request = (COMPILE, LOADER_WORKERS, PREFETCH)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        found = KnobSpace()
        for option in self._tuned(adjustments):
            parameter, dropped = _parameter(option, hardware, adjustments)
            if option is PREFETCH:
                parameter = _if_loader_works_ahead(parameter, found.parameters)
            found.dropped += dropped
            if parameter is not None and (parameter.size != 1 or option.wanted(adjustments, ())):
                found.parameters.append(parameter)
        return found

    def _tuned(self, adjustments: Mapping[str, Any]) -> list[Option]:
        names = [option.name for option in self.options]
        tune = adjustments.get("tune")
        if tune is None:
            return [o for o in self.options if o not in _ONLY_IF_NAMED or adjustments.get(o.name)]
        for name in tune:
            if name not in names:
                raise SpaceError(f"knob 'runtime' can tune {', '.join(names)}; got {name!r}")
        return [option for option in self.options if option.name in tune]


def _parameter(
    option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
) -> tuple[Parameter | None, list[DroppedValue]]:
    if adjustments.get(option.name, True) in (False, None):
        return None, []
    counts = _thread_counts(hardware, adjustments) if option is THREADS else None
    choices = option.wanted(adjustments, counts)
    reasons = _reasons(option, hardware, adjustments)
    kept, dropped = option.split(choices, reasons)
    if not kept:
        return None, dropped
    default = counts[-1] if counts else option.default
    if option is LOADER_WORKERS and hardware.gpus:
        default = 1
    parameter = option.build(adjustments, kept, default=default)
    named = {item.value for item in dropped}
    others = [item for item in option.not_named(parameter, reasons) if item.value not in named]
    return parameter, [*dropped, *others]


def _if_loader_works_ahead(prefetch: Parameter | None, others: list[Parameter]) -> Parameter | None:
    """Activate prefetching only if a loader works ahead."""
    loader = next((other for other in others if other.name == LOADER_WORKERS.name), None)
    if prefetch is None or loader is None or prefetch.when:
        return prefetch
    ahead = [count for count in loader.values() if count]
    return parameter_from_dict({**prefetch.to_dict(), "when": {LOADER_WORKERS.name: ahead}})


def _thread_counts(hardware: Hardware, adjustments: Mapping[str, Any]) -> tuple[int, ...]:
    """Powers of two below the cores of a slot, and the cores."""
    cpus = min(int(adjustments.get("cpus", 1)), hardware.num_cpus)
    return (*(2**i for i in range(cpus.bit_length()) if 2**i < cpus), cpus)


def _reasons(
    option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
) -> dict[Value, str]:
    """The values of an option that this hardware cannot run, each with the reason."""
    if option is MATMUL_PRECISION and hardware.gpus:
        return dict.fromkeys(("high", "medium"), "is tf32 on a GPU, which is a value of precision")
    if option is COMPILE:
        reasons: dict[Value, str] = {}
        if not hardware.gpus:
            reasons |= dict.fromkeys(("reduce-overhead", "cudagraphs"), _GRAPHS)
        if lacks := _lacks_compiler(hardware):
            reasons |= dict.fromkeys(("default", "reduce-overhead", "max-autotune"), lacks)
        return reasons
    if option is COMPACT_MEMORY and hardware.gpus:
        return {True: "is about main memory, trials run on a GPU"}
    if option is THREADS:
        *_, cpus = _thread_counts(hardware, adjustments)
        counts: list[Any] = THREADS.wanted(adjustments)
        return {count: f"a worker slot has {cpus} cores" for count in counts if count > cpus}
    return {}


def _lacks_compiler(hardware: Hardware) -> str | None:
    """What torch.compile lacks here; None if nothing."""
    if hardware.assumed:
        return None
    if not hardware.gpus:
        compiler = os.environ.get("CXX") or "g++"
        if shutil.which(compiler) or shutil.which("clang++"):
            return None
        return f"torch.compile needs a C++ compiler, {compiler} is missing"
    # Triton compiles the functions that launch its kernels, for this Python.
    compiler = os.environ.get("CC") or "gcc"
    if not (shutil.which(compiler) or shutil.which("clang")):
        return f"torch.compile needs a C compiler on GPUs (for Triton), {compiler} is missing"
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        return "torch.compile needs Python's header files on GPUs (for Triton), Python.h is missing"
    return None
