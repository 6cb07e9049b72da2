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
from search_spaces.knobs.table import ACCUMULATION, ACTIVATION_CHECKPOINTING, COMPILE, COMPILE_SCOPE
from search_spaces.plugins import nearest
from workers.context import Context
from workers.parallel import STRATEGIES
from workers.parallel.base import ModuleStrategy
from workers.workload import ParallelPlan

from .knobs import LOCAL_BATCH_NORM, PREPARED
from .loop import PreparedLoop
from .objects import PreparedLoader, prepared_model, prepared_optimizer, prepared_scheduler

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
    given = dict.fromkeys(KINDS)
    for one in objects:
        kind = _kind(one)
        if one is not None and given[kind] is not None:
            raise UsageError(f"trial.prepare takes one {kind}, got two")
        given[kind] = given[kind] if one is None else one
    model, optimizer = given["model"], given["optimizer"]
    values = _values(context, options or {})
    plan = plan_of(model, blocks, tensor_plan or {})
    _check(model, optimizer, plan, values, context.world_size)
    context.loop = loop = PreparedLoop(context, values, plan)
    found: dict[int, Any] = {}
    if given["loader"] is not None:
        found[id(given["loader"])] = PreparedLoader(loop, given["loader"])
    if model is not None:
        names = loop.wrap(model)
        if optimizer is not None:
            loop.take(optimizer, names)
            found[id(optimizer)] = prepared_optimizer(optimizer, loop)
        found[id(model)] = prepared_model(model, loop)
    if given["scheduler"] is not None:
        loop.scheduler = given["scheduler"]
        found[id(loop.scheduler)] = prepared_scheduler(loop.scheduler, loop)
    if context.world_size > 1:  # so that rows of different ranks get different dropout
        torch.manual_seed(context.seed + context.rank // loop.strategy.mesh.tensor)
    if context.loop_state is not None:  # `restore` was called before
        loop.go_on(context.loop_state)
    results = tuple(None if one is None else found[id(one)] for one in objects)
    return results[0] if len(results) == 1 else results


def _kind(one: Any) -> str:
    for name, kind in KINDS.items():
        if isinstance(one, kind):
            return name
    if one is not None:
        raise UsageError(
            "trial.prepare takes a model, an optimizer, a scheduler and a loader of batches, "
            f"got {type(one).__name__}"
        )
    return "loader"


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
        kinds = {type(choice) for choice in known[name].choices}
        if kinds and type(value) not in kinds:
            words = ", ".join(map(str, known[name].choices))
            raise UsageError(f"{name} is one of {words} for trial.prepare, got {value!r}")
        known[name].checked(value)
    return values


def plan_of(
    model: nn.Module | None, blocks: Blocks, tensor_plan: Mapping[str, str]
) -> ParallelPlan:
    """The plan of a model: its blocks, as they are named or found, and its tensor plan.

    Found are the members of the outermost module lists, and of the outermost sequences whose
    members are of one class that has parts of its own.

    Raises:
        UsageError: `blocks` names no module.
    """
    if model is None:
        return ParallelPlan()
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


def _check(
    model: nn.Module | None,
    optimizer: Any,
    plan: ParallelPlan,
    values: Mapping[str, Any],
    ranks: int,
) -> None:
    """Raise UsageError if these settings cannot act on what is given; the message is a sentence.

    Args:
        values: of the options that are set.
        ranks: of the trial.
    """
    strategy = PARALLELISM.value(values)
    kind = STRATEGIES.get(strategy)
    least = max(1, kind.needs.min_ranks)
    if not issubclass(kind, ModuleStrategy):
        raise UsageError(f"parallelism {strategy} is for workloads alone: choose single, ddp, fsdp")
    if ranks < least or ranks > (kind.needs.max_ranks or ranks):
        raise UsageError(
            f"parallelism {strategy} runs on {least} rank{'s or more' if least > 1 else ''}, and "
            f"this trial has {ranks}: the parameter `ranks` and the number of workers say how many"
        )
    kind.degrees(ranks, values)  # refuses a degree that does not divide the ranks
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("trial.prepare takes no LBFGS, which calls the loss by itself")
    if model is None:
        acting = [o for o in PREPARED if o is not ACCUMULATION and o.name in values]
        changed = [o.name for o in acting if o.value(values) != o.unset]
        if optimizer is not None or changed:
            what = "an optimizer" if optimizer is not None else ", ".join(changed)
            raise UsageError(f"{what} needs the model: trial.prepare(model, optimizer, loader)")
        return
    _check_model(model, plan, values, ranks)


def _check_model(
    model: nn.Module, plan: ParallelPlan, values: Mapping[str, Any], ranks: int
) -> None:
    strategy = PARALLELISM.value(values)
    needs = STRATEGIES.get(strategy).needs
    name = type(model).__name__
    reasons = [f"parallelism {strategy}"] if "layers" in needs.plan else []
    if ACTIVATION_CHECKPOINTING.value(values) != ACTIVATION_CHECKPOINTING.unset:
        reasons.append(f"activation_checkpointing {ACTIVATION_CHECKPOINTING.value(values)}")
    if COMPILE.value(values) != "off" and COMPILE_SCOPE.value(values) == "layers":
        reasons.append("compile_scope layers")
    if reasons and not plan.layers:
        raise UsageError(
            f"{reasons[0]} needs the blocks of the model, and {name} has no module list: name "
            "them, as in trial.prepare(..., blocks=['encoder.*'])"
        )
    if "tensor" in needs.plan and not plan.tensor:
        raise UsageError(
            f"parallelism {strategy} needs a plan: trial.prepare(..., tensor_plan="
            "{'blocks.*.up': 'column', 'blocks.*.down': 'row'})"
        )
    parts = ACCUMULATION.value(values)
    splits = parts > 1 or (ranks > 1 and "tensor" not in needs.plan)
    normed = [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if splits and normed and not LOCAL_BATCH_NORM.value(values):
        raise UsageError(
            f"{normed[0]} normalises over the rows of a batch, so {strategy} on {ranks} ranks with "
            f"accumulation {parts} would compute something else; if that is fine, say "
            "trial.prepare(..., local_batch_norm=True)"
        )
