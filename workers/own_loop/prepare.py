"""`trial.prepare`: the model, optimizer, scheduler and loader of a user's own training loop.

The objects stay those of the user, of their classes, with all their attributes, methods and hooks.
Methods of the model that take tensors compute in the trial's number format; `step` and `zero_grad`
of the optimizer, and `step` of the scheduler, act once an update.
"""

import fnmatch
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.utils import _apply_to_tensors
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_flatten, tree_map_only

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import ACCUMULATION
from search_spaces.plugins import nearest
from workers.context import Context
from workers.device.precision import HALF
from workers.parallel import STRATEGIES
from workers.parallel.transfers import is_sharded, sent
from workers.ranks.process_group import value_of_rank_0
from workers.workload import ParallelPlan

from .knobs import LOCAL_BATCH_NORM, PREPARED
from .loop import PreparedLoop

Blocks = Sequence[str] | type[nn.Module]
KINDS: Final[dict[str, Any]] = {
    "model": nn.Module,
    "optimizer": Optimizer,
    "scheduler": LRScheduler,
    "loader": Iterable,
}
_END: Final = object()
_RUN: Final = "_prepared_run"


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
    if kind.apart:
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


def prepare_model(model: nn.Module, loop: PreparedLoop) -> None:
    """Let the methods of the model compute under the loop; `module` is the model, as DDP calls it.

    If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`. The state
    has whole tensors, on the CPU of rank 0; it is empty on other ranks.
    """
    held: Any = model  # methods of an object take the place of those of its class
    held.zero_grad = partial(_clear, loop, model.zero_grad)
    if not hasattr(model, "module"):
        model.__dict__["module"] = model
    if not loop.strategy.replicated:
        held.register_state_dict_post_hook(partial(_gather, loop))
        held.register_load_state_dict_pre_hook(partial(_scatter, loop))
    elif loop.precision.name not in HALF:
        return
    own = [base for base in type(model).__mro__ if not base.__module__.startswith("torch.")]
    if isinstance(model, FSDPModule):
        setattr(model, _RUN, lambda method, *inputs, **named: method(*inputs, **named))
        register_fsdp_forward_method(model, _RUN)
    for name, function in [one for base in reversed(own) for one in vars(base).items()]:
        if isinstance(function, FunctionType) and name not in vars(nn.Module):
            method = getattr(type(model), name).__get__(model)
            run = partial(getattr(model, _RUN), method) if hasattr(model, _RUN) else method
            setattr(model, name, partial(_computed, loop, run))
    held.forward = partial(_computed, loop, model.forward)


def _computed(loop: PreparedLoop, method: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call a method of the model; outputs in half precision become fp32."""
    leaves, _ = tree_flatten((inputs, named))
    if loop.inside or not any(isinstance(leaf, Tensor) for leaf in leaves):
        return method(*inputs, **named)
    loop.inside = True
    try:
        with loop.precision.autocast():
            output = method(*inputs, **named)
    finally:
        loop.inside = False
    return _apply_to_tensors(_widened, output) if loop.precision.name in HALF else output


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF.values() else tensor


def _clear(loop: PreparedLoop, clear: Callable[..., None], set_to_none: bool = True) -> None:
    """Clear the gradients, unless they wait for the update."""
    if not loop.between:
        clear(set_to_none)


def _gather(loop: PreparedLoop, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """Put whole tensors in the place of this rank's parts."""
    for name, value in list(state.items()):
        if isinstance(value, Tensor):
            state[name] = loop.strategy.gather(value.detach(), name).cpu()
    if loop.context.rank:
        state.clear()


def _scatter(loop: PreparedLoop, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """Put this rank's parts in the place of the whole tensors of rank 0; torch checks the rest."""
    held = dict(model.named_parameters(remove_duplicate=False))
    for name, whole in sent({name: one for name, one in state.items() if isinstance(one, Tensor)}):
        like = held.get(name, whole)
        fits = is_sharded(like) and like.shape == whole.shape
        state[name] = loop.strategy.scatter(whole, like, name) if fits else whole


def prepare_optimizer(optimizer: Any, loop: PreparedLoop) -> None:
    """Let `step` and `zero_grad` act once an update; `updates` is how many there were.

    If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`. The state
    is that of torch, with whole tensors, so it fits any strategy, and one of plain torch loads.
    """
    plain_step = optimizer.step

    def step(self: Any, closure: Any = None) -> Any:
        if closure is not None:
            raise UsageError("the step of a prepared optimizer takes no closure")
        result = loop.step(plain_step)
        self.updates = loop.updates
        return result

    if getattr(plain_step, "_wrapped_by_lr_sched", False):  # a scheduler looks for it
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = MethodType(step, optimizer)
    optimizer.updates = 0
    optimizer.zero_grad = partial(_clear, loop, optimizer.zero_grad)
    if not loop.strategy.replicated:
        names = {id(parameter): name for name, parameter in loop.strategy.parameters().items()}
        optimizer.register_state_dict_post_hook(partial(_changed, partial(_whole, loop, names)))
        optimizer.register_load_state_dict_pre_hook(partial(_changed, partial(_part, loop, names)))


def _whole(loop: PreparedLoop, names: Mapping[int, str], parameter: Tensor, value: Tensor) -> Any:
    whole = loop.strategy.gather(value.detach(), names[id(parameter)])
    return None if loop.context.rank else whole.cpu()


def _part(loop: PreparedLoop, names: Mapping[int, str], parameter: Tensor, value: Tensor) -> Any:
    fits = is_sharded(parameter) and value.shape == parameter.shape
    return loop.strategy.scatter(value, parameter, names[id(parameter)]) if fits else value


def _changed(change: Any, optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state of torch, in which each tensor is changed, given its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    held = dict(zip(numbers, parameters, strict=False))  # torch compares their counts
    changed = {
        number: tree_map_only(Tensor, partial(change, held[number]), entries)
        for number, entries in state["state"].items()
    }
    return {**state, "state": changed}


def prepare_scheduler(scheduler: LRScheduler, loop: PreparedLoop) -> None:
    """Let `step` act once an update, and at the end of an epoch.

    An update that fp16 has skipped is no step of a scheduler that steps after each update.
    """
    kind: Any = type(scheduler)
    calls = [0]

    def step(self: Any, *arguments: Any, **named: Any) -> None:
        if loop.between:
            return
        calls[0] += 1
        if not (loop.skipped and calls[0] == loop.attempted):
            kind.step(self, *arguments, **named)

    body = {"step": step, "__module__": kind.__module__, "__doc__": kind.__doc__}
    scheduler.__class__ = type(kind.__name__, (kind,), body)


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from a random state of torch of its own, the same on every rank: its batches
    depend neither on the strategy, nor on what the model draws.
    """

    def __init__(self, loop: PreparedLoop, loader: Any) -> None:
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            raise UsageError("trial.prepare shares batches out: leave DistributedSampler out")
        self._loop = loop
        self._loader = loader
        self._epoch: dict[str, Any] | None = None  # the state at the beginning of this epoch
        batches = getattr(loader, "batch_sampler", None)
        parts = (loader, sampler, batches, getattr(batches, "sampler", None))
        drawing = [getattr(part, "generator", None) for part in parts]
        self._generators = {id(g): g for g in drawing if isinstance(g, torch.Generator)}
        drawn = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        ours, numpys, self._state = value_of_rank_0(drawn)
        random.setstate(ours)
        np.random.set_state(numpys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) * self._loop.accumulation

    def order(self) -> dict[str, Any]:
        """What an attempt needs to give the same batches: from the next epoch on, or in this one.

        An epoch that was broken off counts as not ended.
        """
        others = [generator.get_state() for generator in self._generators.values()]
        return self._epoch or {"torch": self._state, "generators": others}

    def go_on(self, order: Mapping[str, Any]) -> None:
        """The inverse of `order`."""
        self._state, self._epoch = order["torch"], None
        for generator, state in zip(self._generators.values(), order["generators"], strict=False):
            generator.set_state(state)

    def __iter__(self) -> Iterator[Any]:
        self._epoch = None
        self._epoch = self.order()
        with self._drawing():
            batches = iter(self._loader)
        while True:
            with self._drawing():
                batch = next(batches, _END)
            if batch is _END:
                break
            yield from self._microbatches(batch)
        self._epoch = None
        if self._loop.divided:
            self._loop.part = self._loop.parts  # there is none to train

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(before)

    def _microbatches(self, batch: Any) -> Iterator[Any]:
        """This rank's parts of a global batch; a part without rows has one that does not count."""
        loop = self._loop
        if isinstance(batch, Mapping) and not isinstance(batch, dict):
            batch = dict(batch)  # such as the batches of transformers
        count, index = loop.strategy.batch_degree, loop.strategy.batch_rank
        rows = num_rows(batch, count * loop.accumulation, first=not loop.begun)
        if count > 1 and not loop.begun:
            _check_same(batch)
        first, end = rows * index // count, rows * (index + 1) // count
        parts = max(1, min(loop.accumulation, rows // count))

        for part in range(parts):
            begin, stop = (first + (end - first) * at // parts for at in (part, part + 1))
            loop.begin(part, parts, (stop - begin) / rows, rows)
            yield tree_map_only(Tensor, partial(_rows, begin, stop, loop), batch)


def _rows(begin: int, end: int, loop: PreparedLoop, tensor: Tensor) -> Tensor:
    whole = not loop.divided or not tensor.ndim
    part = tensor if whole else tensor[slice(begin, end) if end > begin else slice(0, 1)]
    return part.to(loop.device, non_blocking=True)


def num_rows(batch: Any, divided: int, *, first: bool) -> int:
    """The rows of a batch; 1 if it is not divided.

    Raises:
        UsageError: it cannot be divided into so many parts, or it is the first and has fewer rows.
    """
    if divided == 1:
        return 1
    leaves, _ = tree_flatten(batch)
    sizes = {len(one) for one in leaves if isinstance(one, Tensor) and one.ndim}
    others = [one for one in leaves if not isinstance(one, Tensor | int | float | bool | None)]
    words = f"a batch to divide into {divided} parts"
    if others or len(sizes) != 1:
        got = f"a {type(others[0]).__name__}" if others else f"{sorted(sizes)} rows"
        raise UsageError(f"{words} is made of tensors of as many rows, got {got}")
    rows = sizes.pop()
    if first and rows < divided:
        raise UsageError(f"{words} has as many rows, got {rows}")
    return rows


def _check_same(batch: Any) -> None:
    """Raise UsageError if rank 0 has drawn another first batch."""
    leaves = [one for one in tree_flatten(batch)[0] if isinstance(one, Tensor)]
    mine = [(tuple(one.shape), float(one.double().sum())) for one in leaves]
    if mine != value_of_rank_0(mine):
        raise UsageError(
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank"
        )
