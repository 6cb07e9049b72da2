"""The knobs of a user's own training loop, and which of them act through `trial.prepare`."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final

from search_spaces import Space
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
    TENSOR_DEGREE,
    THREADS,
)
from search_spaces.parameters import Parameter, parameter_from_dict
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
    TENSOR_DEGREE,
    BUCKET_MEGABYTES,
    REDUCTION,
    CPU_OFFLOAD,
    CLIP_NORM,
    LOCAL_BATCH_NORM,
)

SHARED_OUT: Final = ("single", "ddp", "fsdp")  # what `parallelism` tries unless it is told
ANY_SLOTS: Final = 1024  # the sweep knows its slots, see `automl.core.ranks`


def knobs(*names: str, **choices: Any) -> tuple[Parameter, ...]:
    """Ready-made parameters of these names, with the values that this machine can run.

    Example:
        >>> space = Space(Float("lr", 1e-4, 0.1, log=True), *knobs("precision", "compile"))

    Args:
        names: of parameters, as `automl space` prints them, or of a knob for all that are in it.
        choices: further names, each with the values to try: `parallelism=["single", "tensor"]`, or
            a mapping as in a configuration. What this machine cannot run is left out.

    Raises:
        UsageError: a name is unknown, or acts only with another one that is not there.
        SpaceError: no value is left of the `choices` that this machine can run.
    """
    found = resolved([*names, *choices], choices, detect)
    for name, given in choices.items():
        if name not in found:
            raise SpaceError(f"{name}: this machine can run none of {given!r}")
    return tuple(found.values())


def resolved(
    names: list[str], choices: Mapping[str, Any], detected: Callable[[], Hardware]
) -> dict[str, Parameter]:
    """The parameters that `knobs` returns, by name; see there.

    Args:
        detected: gives the hardware.
    """
    tables = {name: KNOBS.get(name) for name in KNOBS.names()}
    owners = {option.name: (knob, option) for knob in tables.values() for option in knob.options}
    wanted: dict[str, None] = {}
    for name in names:
        if name not in owners and name not in tables:
            raise UsageError(f"there is no knob {name!r}: {nearest(name, [*owners, *tables])}")
        options = () if name in owners else tables[name].options
        wanted |= dict.fromkeys(option.name for option in options) or {name: None}
    found: dict[str, Parameter] = {}
    for name in wanted:
        knob, option = owners[name]
        adjustments: dict[str, Any] = {name: choices.get(name, True)}
        for value in option.wanted(adjustments):
            option.checked(value)
        if name == THREADS.name:
            adjustments["cpus"] = ANY_SLOTS
        elif name == PARALLELISM.name:
            strategies = requirements()
            adjustments = {
                "strategies": strategies,
                "plan": ("layers", "tensor"),
                "slots": ANY_SLOTS,
                name: choices.get(name, list(SHARED_OUT)),
            }
        found |= {p.name: p for p in knob().resolve(detected(), adjustments).parameters}
    return {name: _alone(found[name], wanted) for name in wanted if name in found}


def _alone(parameter: Parameter, names: Mapping[str, Any]) -> Parameter:
    """The parameter, whose conditions name parameters that are tuned too."""
    missing = [parent for parent in parameter.when if parent not in names]
    acting = {option.name for option in PREPARED}.intersection(missing)
    if acting:
        raise UsageError(f"{parameter.name} acts only with {acting.pop()!r}: name that knob too")
    when = {parent: list(v) for parent, v in parameter.when.items() if parent not in missing}
    return parameter_from_dict({**parameter.to_dict(), "when": when}) if missing else parameter


def without_prepare(space: Space, objective: Any) -> list[str]:
    """The knobs of a space that a function neither hands to `trial.prepare` nor reads.

    It is read from the code of the function and of those functions of its module that it calls.
    """
    said = set(_mentioned(objective))
    if not said or "prepare" in said:
        return []
    return [o.name for o in PREPARED if o.name in space.parameters and o.name not in said]


def mentions(objective: Any, *names: str) -> bool:
    """Whether the code of a function names one of these; see `without_prepare`."""
    return not set(names).isdisjoint(_mentioned(objective))


def _mentioned(objective: Any) -> Iterator[str]:
    """The names and texts in the code of an objective; nothing if it has no code of Python."""
    while isinstance(objective, partial):
        objective = objective.func
    function = getattr(objective, "__func__", objective)
    if not hasattr(function, "__code__"):
        function = vars(type(objective)).get("__call__")
    seen: set[Any] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in seen:
            continue
        seen.add(one)
        for code in _codes(one.__code__):
            yield from (text for text in code.co_consts if isinstance(text, str))
            yield from code.co_names
            near = (one.__globals__.get(name) for name in code.co_names)
            waiting += [f for f in near if getattr(f, "__module__", None) == one.__module__]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
