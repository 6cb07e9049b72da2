"""A training loop of the user's own under a trial's settings: `trial.prepare`, `automl.knobs`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from search_spaces.errors import SpaceError, UsageError
from search_spaces.hardware import Hardware, detect
from search_spaces.knobs import KNOBS, Option
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import (
    ACCUMULATION,
    ACTIVATION_CHECKPOINTING,
    ATTENTION_BACKEND,
    BUCKET_MEGABYTES,
    CHECKPOINT_EVERY,
    COMPACT_MEMORY,
    COMPILE,
    COMPILE_SCOPE,
    CPU_OFFLOAD,
    DETERMINISTIC,
    MATMUL_PRECISION,
    MEMORY_FORMAT,
    PRECISION,
    REDUCTION,
    SHARD_DEGREE,
    THREADS,
)
from search_spaces.parameters import Parameter
from search_spaces.plugins import nearest
from workers.parallel import requirements

CLIP_NORM: Final = Option("clip_norm", "bound on the norm of the gradient; 0 for none", 0.0)
LOCAL_BATCH_NORM: Final = Option(
    "local_batch_norm", "whether batch norms may see the rows of a microbatch alone", False
)
# What acts through `trial.prepare`; each strategy has options of its own besides.
PREPARED: Final = (
    PRECISION,
    MATMUL_PRECISION,
    COMPILE,
    COMPILE_SCOPE,
    ACTIVATION_CHECKPOINTING,
    CHECKPOINT_EVERY,
    ACCUMULATION,
    MEMORY_FORMAT,
    COMPACT_MEMORY,
    THREADS,
    ATTENTION_BACKEND,
    DETERMINISTIC,
    PARALLELISM,
    SHARD_DEGREE,
    BUCKET_MEGABYTES,
    REDUCTION,
    CPU_OFFLOAD,
    CLIP_NORM,
    LOCAL_BATCH_NORM,
)

SHARED_OUT: Final = ("single", "ddp", "fsdp")  # what `parallelism` tries unless it is told
# As many as there may be: the sweep knows its slots, see `automl.core.spec`.
SLOTS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    THREADS.name: lambda: {"cpus": 1024},
    PARALLELISM.name: lambda: {
        "slots": 1024,
        "plan": ("layers",),
        "strategies": requirements(),  # imports torch
    },
}


def knobs(*names: str, **choices: Any) -> tuple[Parameter, ...]:
    """Ready-made parameters of these names, with the values that this machine can run.

    Example:
        >>> space = Space(Float("lr", 1e-4, 0.1, log=True), *knobs("precision", "compile"))

    Args:
        names: of parameters, as `automl space` prints them, or of a knob for all that are in it.
        choices: further names, each with the values to try: `parallelism=["single", "ddp"]`, or
            a mapping as in a configuration. What this machine cannot run is left out.

    Raises:
        UsageError: a name is unknown.
        SpaceError: no value is left of the `choices` that this machine can run.
    """
    found = resolved([*names, *choices], choices, detect)
    for name in (one for one in choices if one not in found):
        raise SpaceError(f"{name}: this machine can run none of {choices[name]!r}")
    return tuple(found.values())


def resolved(
    names: list[str], choices: Mapping[str, Any], detected: Callable[[], Hardware]
) -> dict[str, Parameter]:
    """The parameters that `knobs` returns, by name; `detected` gives the hardware."""
    tables = {name: KNOBS.get(name) for name in KNOBS.names()}
    owners = {option.name: (knob, option) for knob in tables.values() for option in knob.options}
    members = {
        **{name: [option.name for option in knob.options] for name, knob in tables.items()},
        **{name: [name] for name in owners},
    }
    for name in (one for one in names if one not in members):
        raise UsageError(f"there is no knob {name!r}: {nearest(name, [*members])}")
    wanted = dict.fromkeys(option for name in names for option in members[name])
    choices = {PARALLELISM.name: list(SHARED_OUT), **choices}
    found: dict[str, Parameter] = {}
    for name in wanted:
        knob, option = owners[name]
        adjusted = option.adjusted(choices)
        for value in adjusted.choices if adjusted else ():
            option.checked(value)
        adjustments = {name: choices.get(name, True), **SLOTS.get(name, dict)()}
        found |= {p.name: p for p in knob().resolve(detected(), adjustments).parameters}
    return {name: found[name] for name in wanted if name in found}
