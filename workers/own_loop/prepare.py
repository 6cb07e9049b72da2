"""`trial.prepare`: takes model, optimizer and loader, and checks that the settings can act."""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import ACCUMULATION
from search_spaces.plugins import nearest
from workers.context import Context
from workers.parallel import STRATEGIES
from workers.parallel.base import ModuleStrategy
from workers.workload import ParallelPlan

from .knobs import LOCAL_BATCH_NORM, PREPARED
from .loop import PreparedLoop
from .objects import PreparedLoader, prepare_model, prepare_optimizer, prepare_scheduler

Blocks = Sequence[str] | type[nn.Module]
KINDS: Final[dict[str, Any]] = {
    "model": nn.Module,
    "optimizer": Optimizer,
    "scheduler": LRScheduler,
    "loader": Iterable,
}


def prepare(
    context: Context,
    objects: Sequence[Any],
    blocks: Blocks = (),
    tensor_plan: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """See `Context.prepare`."""
    if context.loop is not None:
        raise UsageError("trial.prepare is called once: give it model, optimizer and loader")
    given: dict[str, Any] = dict.fromkeys(KINDS)
    for one in objects:
        kind = next((name for name, kind in KINDS.items() if isinstance(one, kind)), None)
        if kind is None or given[kind] is not None:
            raise UsageError(
                "trial.prepare takes a model, an optimizer, a scheduler and a loader of batches, "
                f"one of each, got {type(one).__name__}"
            )
        given[kind] = one
    model, optimizer, loader = given["model"], given["optimizer"], given["loader"]
    if model is None:
        raise UsageError("trial.prepare needs the model: trial.prepare(model, optimizer, loader)")
    values = _values(context, options or {})
    plan = plan_of(model, blocks, tensor_plan or {})
    _check(model, loader, values, context.world_size)
    context.loop = loop = PreparedLoop(context, values, plan)
    if loader is not None:
        loop.loader = PreparedLoader(loop, loader)
    names = loop.wrap(model)
    if optimizer is not None:
        loop.take(optimizer, names)
        prepare_optimizer(optimizer, loop)
    prepare_model(model, loop)
    if given["scheduler"] is not None:
        loop.scheduler = given["scheduler"]
        prepare_scheduler(loop.scheduler, loop)
    if context.world_size > 1:  # so that rows of different ranks get different dropout
        torch.manual_seed(context.seed + context.rank // loop.strategy.mesh.tensor)
    if context.loop_state is not None:  # `restore` was called before
        loop.go_on(context.loop_state)
    results = tuple(loop.loader if one is loader else one for one in objects)
    return results[0] if len(results) == 1 else results


def _values(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the loop: the trial's parameters before those that the call gives.

    Raises:
        UsageError: an option is unknown, or has no such value.
    """
    default = "ddp" if context.world_size > 1 else PARALLELISM.unset
    strategy = context.params.get("parallelism", given.get("parallelism", default))
    STRATEGIES.require(strategy)
    own = STRATEGIES.get(strategy).options
    known = {option.name: option for option in (*PREPARED, *own)}
    for name in given:
        if name not in known:
            raise UsageError(f"trial.prepare has no option {name!r}: {nearest(name, list(known))}")
    values = {**given, **{k: v for k, v in context.params.items() if k in known}}
    values[PARALLELISM.name] = strategy
    for name, value in values.items():
        if type(value) not in {type(one) for one in known[name].choices or (value,)}:
            words = ", ".join(map(str, known[name].choices))
            raise UsageError(f"{name} is one of {words} for trial.prepare, got {value!r}")
        known[name].checked(value)
    return values


def plan_of(model: nn.Module, blocks: Blocks, tensor_plan: Mapping[str, str]) -> ParallelPlan:
    """The plan of a model: its blocks, as they are named or found, and its tensor plan.

    Found are the members of the outermost module lists, and of the outermost sequences whose
    members are of one class that has parts of its own.

    Raises:
        UsageError: `blocks` names no module.
    """
    named = dict(model.named_modules())
    if isinstance(blocks, type):
        layers = [name for name, module in named.items() if isinstance(module, blocks)]
    else:
        texts = [blocks] if isinstance(blocks, str) else blocks
        layers = [name for text in texts for name in fnmatch.filter(named, text)]
    if blocks and not layers:
        known = ", ".join(name for name, _ in model.named_children())
        raise UsageError(f"blocks={blocks!r} names no module of the model, which has {known}")
    return ParallelPlan(tuple(layers or _found(model)), dict(tensor_plan))


def _found(model: nn.Module, prefix: str = "") -> Iterator[str]:
    for name, child in model.named_children():
        members = list(child.children())
        listed = isinstance(child, nn.ModuleList)
        if isinstance(child, nn.Sequential) and len({type(one) for one in members}) == 1:
            listed = any(True for one in members[0].children())
        if listed and len(members) > 1:
            yield from (f"{prefix}{name}.{index}" for index, _ in child.named_children())
        else:
            yield from _found(child, f"{prefix}{name}.")


def _check(model: nn.Module, loader: Any, values: Mapping[str, Any], ranks: int) -> None:
    """Raise UsageError if these settings cannot act on what is given; the message is a sentence."""
    strategy = PARALLELISM.value(values)
    parts = ACCUMULATION.value(values)
    kind = STRATEGIES.get(strategy)
    if not issubclass(kind, ModuleStrategy):
        raise UsageError(f"parallelism {strategy} is for workloads alone: choose single, ddp, fsdp")
    if parts > 1 and loader is None:
        raise UsageError(f"accumulation {parts} divides the batches of a loader: prepare it too")
    splits = parts > 1 or (ranks > 1 and "tensor" not in kind.needs.plan)
    normed = [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if splits and normed and not LOCAL_BATCH_NORM.value(values):
        raise UsageError(
            f"{normed[0]} normalises over the rows of a batch, so {strategy} on {ranks} ranks with "
            f"accumulation {parts} would compute something else; if that is fine, say "
            "trial.prepare(..., local_batch_norm=True)"
        )
