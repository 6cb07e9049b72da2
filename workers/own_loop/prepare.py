"""`trial.prepare`: the model, optimizer, scheduler and loader of a user's own training loop.

The objects stay those of the user, of their classes, with all their attributes, methods and hooks.
Methods of the model that take tensors compute in the trial's number format; `step` and `zero_grad`
of the optimizer, and `step` of the scheduler, act once an update.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import chain, pairwise
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
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
from workers.parallel.transfers import from_rank_0
from workers.ranks import value_of_rank_0
from workers.training.setup import arrange
from workers.workload import ParallelPlan

from .knobs import LOCAL_BATCH_NORM, PREPARED
from .loop import PreparedLoop

KINDS: Final[dict[str, Any]] = {
    "model": nn.Module,
    "optimizer": Optimizer,
    "scheduler": LRScheduler,
    "loader": Iterable,
}
_END: Final = object()


def prepare(
    context: Context,
    objects: Sequence[Any],
    blocks: Sequence[str] = (),
    tensor_plan: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """See `Context.prepare`."""
    if context.loop is not None:
        raise UsageError("trial.prepare is called once: give it model, optimizer and loader")
    kinds = [next((n for n, kind in KINDS.items() if isinstance(one, kind)), "") for one in objects]
    given = dict(zip(kinds, objects, strict=True))
    if "model" not in given or "" in given or len(given) < len(objects):
        got = ", ".join(type(one).__name__ for one in objects)
        raise UsageError(
            "trial.prepare takes a model, and one each of an optimizer, a scheduler and a loader "
            f"of batches, got {got or 'nothing'}"
        )
    model = given["model"]
    values = _values(context, options or {})
    plan = plan_of(model, blocks, tensor_plan or {})
    _check(model, "loader" in given, values, context.world_size)
    context.loop = loop = PreparedLoop(context, values, plan)
    if "loader" in given:
        loop.loader = given["loader"] = PreparedLoader(loop, given["loader"])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    # A strategy of parts moves the model from the CPU to the device by itself, part by part.
    model.to(loop.device if loop.strategy.replicated else torch.device("cpu"))
    if context.world_size > 1:
        for held in (*model.parameters(), *model.buffers()):
            held.data.copy_(from_rank_0(held.detach().cpu()))
    arrange(model, plan, values)
    loop.strategy.wrap_own(model)
    prepare_model(model, loop)
    if "optimizer" in given:
        prepare_optimizer(given["optimizer"], loop, names)
    if "scheduler" in given:
        prepare_scheduler(given["scheduler"], loop)
    if context.world_size > 1:  # so that rows of different ranks get different dropout
        torch.manual_seed(context.seed + context.rank // loop.strategy.mesh.tensor)
    if context.loop_state is not None:  # `restore` was called before
        loop.go_on(context.loop_state)
    results = tuple(given[kind] for kind in kinds)
    return results[0] if len(results) == 1 else results


def _values(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the loop: the trial's parameters before those that the call gives.

    Raises:
        UsageError: an option is unknown.
    """
    default = "ddp" if context.world_size > 1 else PARALLELISM.unset
    strategy = context.params.get("parallelism", given.get("parallelism", default))
    known = {option.name: option for option in (*PREPARED, *STRATEGIES.get(strategy).options)}
    for name in given.keys() - known.keys():
        raise UsageError(f"trial.prepare has no option {name!r}: {nearest(name, list(known))}")
    values = {**given, **{k: v for k, v in context.params.items() if k in known}}
    return {**values, PARALLELISM.name: strategy}


def plan_of(
    model: nn.Module, blocks: Sequence[str], tensor_plan: Mapping[str, str]
) -> ParallelPlan:
    """The plan of a model: its blocks, as they are named or found, and its tensor plan.

    Found are the members of the outermost module lists.

    Raises:
        UsageError: `blocks` names no module.
    """
    named = dict(model.named_modules())
    patterns = [blocks] if isinstance(blocks, str) else blocks
    layers = [name for pattern in patterns for name in fnmatch.filter(named, pattern)]
    if blocks and not layers:
        known = ", ".join(name for name, _ in model.named_children())
        raise UsageError(f"blocks={blocks!r} names no module of the model, which has {known}")
    return ParallelPlan(tuple(layers or _found(model)), dict(tensor_plan))


def _found(model: nn.Module, prefix: str = "") -> Iterator[str]:
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList):
            yield from (f"{prefix}{name}.{index}" for index, _ in child.named_children())
        else:
            yield from _found(child, f"{prefix}{name}.")


def _check(model: nn.Module, has_loader: bool, values: Mapping[str, Any], ranks: int) -> None:
    """Raise UsageError if these settings cannot act on what is given; the message is a sentence."""
    strategy = PARALLELISM.value(values)
    parts = ACCUMULATION.value(values)
    kind = STRATEGIES.get(strategy)
    if kind.apart:
        raise UsageError(f"parallelism {strategy} is for workloads alone: choose single, ddp, fsdp")
    if parts > 1 and not has_loader:
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

    If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`, with
    whole tensors on the CPU.
    """
    held: Any = model  # methods of an object take the place of those of its class
    held.zero_grad = partial(_clear, loop, model.zero_grad)
    if not hasattr(model, "module"):
        model.__dict__["module"] = model
    if not loop.strategy.replicated:
        held.register_state_dict_post_hook(partial(_in_state, loop.gathered))
        held.register_load_state_dict_pre_hook(partial(_in_state, loop.scattered))
    elif loop.precision.name not in HALF:
        return
    own = [vars(base) for base in type(model).__mro__ if not base.__module__.startswith("torch.")]
    methods = {name for body in own for name, f in body.items() if isinstance(f, FunctionType)}
    for name in methods.difference(vars(nn.Module)):
        register_fsdp_forward_method(model, name)  # only if it is sharded by torch's FSDP
    for name in {"forward", *methods.difference(vars(nn.Module))}:
        setattr(model, name, partial(_computed, loop, getattr(model, name)))


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


def _in_state(change: Any, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """Change each parameter in a state of the model."""
    held = dict(model.named_parameters(remove_duplicate=False))
    state |= {n: change(state[n], held[n], n) for n in state.keys() & held.keys()}


def prepare_optimizer(optimizer: Any, loop: PreparedLoop, names: Mapping[int, str]) -> None:
    """Let the optimizer update this rank's parameters; `step` and `zero_grad` act once an update.

    If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`. The state
    is that of torch, with whole tensors, so it fits any strategy, and one of plain torch loads.

    Args:
        optimizer: changed in place; `updates` is how many there were.
        names: of the parameters that the model had, by their identities.

    Raises:
        UsageError: there are several ranks, and it has other parameters or a state.
    """
    own = [id(p) for group in optimizer.param_groups for p in group["params"]]
    if loop.context.world_size > 1 and (optimizer.state or not names.keys() >= set(own)):
        raise UsageError(
            "with several ranks an optimizer has parameters of the model only, and is prepared "
            "before its first step and before its state is restored"
        )
    held = loop.strategy.parameters()
    for group in optimizer.param_groups:
        group["params"] = [held.get(names.get(id(p), ""), p) for p in group["params"]]
    plain_step = optimizer.step

    @wraps(plain_step)  # with the marks of schedulers
    def step(self: Any) -> Any:
        return loop.step(plain_step)

    loop.optimizer = optimizer
    optimizer.step = MethodType(step, optimizer)
    optimizer.updates = 0
    optimizer.zero_grad = partial(_clear, loop, optimizer.zero_grad)
    if not loop.strategy.replicated:
        known = {id(parameter): name for name, parameter in held.items()}
        optimizer.register_state_dict_post_hook(partial(_changed, loop.gathered, known))
        optimizer.register_load_state_dict_pre_hook(partial(_changed, loop.scattered, known))


def _changed(
    change: Any, names: Mapping[int, str], optimizer: Optimizer, state: Mapping[str, Any]
) -> dict[str, Any]:
    """A state of torch, in which each tensor is changed, given its parameter and the name."""
    parameters = chain(*(group["params"] for group in optimizer.param_groups))
    numbers = chain(*(group["params"] for group in state["param_groups"]))
    changed = {
        number: tree_map_only(
            Tensor, partial(change, like=like, name=names[id(like)]), state["state"][number]
        )
        for number, like in zip(numbers, parameters, strict=False)  # torch compares their counts
        if number in state["state"]
    }
    return {**state, "state": changed}


def prepare_scheduler(scheduler: LRScheduler, loop: PreparedLoop) -> None:
    """Let `step` act once an update, and at the end of an epoch.

    An update that fp16 has skipped is no step of a scheduler that steps after each update.
    """
    kind: Any = type(scheduler)

    def step(self: Any, *arguments: Any, **named: Any) -> None:
        if not loop.between:
            alone = loop.attempted - loop.scheduled == 1
            loop.scheduled = loop.attempted
            if not (alone and loop.skipped):
                kind.step(self, *arguments, **named)

    scheduler.__class__ = type(kind.__name__, (kind,), {"step": step})
    loop.scheduler = scheduler


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from a random state of torch of its own, the same on every rank: its batches
    depend neither on the strategy, nor on what the model draws.

    Attributes:
        order: what an attempt needs to give the same batches, from the next epoch on, or in this
            one; an epoch that was broken off counts as not ended.
    """

    def __init__(self, loop: PreparedLoop, loader: Any) -> None:
        self._loop = loop
        self._loader = loader
        batches = getattr(loader, "batch_sampler", None)
        drawing = (loader, getattr(loader, "sampler", None), getattr(batches, "sampler", None))
        found = (getattr(part, "generator", None) for part in (*drawing, batches))
        self._generators = [one for one in found if isinstance(one, torch.Generator)]
        self._state = torch.get_rng_state()
        self.order = self._order()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) * self._loop.accumulation

    def _order(self) -> dict[str, Any]:
        others = [generator.get_state() for generator in self._generators]
        return {"torch": self._state, "generators": others}

    def go_on(self, order: Mapping[str, Any]) -> None:
        """Give the batches that another attempt would have given by its `order`."""
        self._state = order["torch"]
        for generator, state in zip(self._generators, order["generators"], strict=False):
            generator.set_state(state)
        self.order = self._order()

    def __iter__(self) -> Iterator[Any]:
        loop = self._loop
        strategy = loop.strategy
        self.order = self._order()
        batches = self._drawn(iter, self._loader)
        while (batch := self._drawn(next, batches, _END)) is not _END:
            if isinstance(batch, Mapping) and not isinstance(batch, dict):
                batch = dict(batch)  # such as the batches of transformers
            divided = strategy.batch_degree * loop.accumulation
            rows = num_rows(batch, divided, first=not loop.begun)
            parts = max(1, min(loop.accumulation, rows // strategy.batch_degree))
            bounds = [rows * strategy.batch_rank // strategy.batch_degree]
            mine = rows * (strategy.batch_rank + 1) // strategy.batch_degree - bounds[0]
            bounds += [bounds[0] + mine * part // parts for part in range(1, parts + 1)]
            for part, (begin, end) in enumerate(pairwise(bounds)):
                loop.begin(part, parts, rows, end - begin)
                # A part without rows has one that does not count.
                cut = slice(begin, end) if end > begin else slice(1)
                yield tree_map_only(Tensor, partial(_rows, cut, loop), batch)
        self.order = self._order()
        loop.part = -1  # there is none to train

    def _drawn(self, draw: Callable[..., Any], *arguments: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._state)
            result = draw(*arguments)
            self._state = torch.get_rng_state()
        return result


def _rows(cut: slice, loop: PreparedLoop, tensor: Tensor) -> Tensor:
    part = tensor[cut] if loop.divided and tensor.ndim else tensor
    return part.to(loop.device, non_blocking=True)


def num_rows(batch: Any, divided: int, *, first: bool) -> int:
    """The rows of a batch; 1 if it is not divided.

    Raises:
        UsageError: it cannot be divided into so many parts, or it is the first and has fewer rows,
            or other ones than on rank 0.
    """
    if divided == 1:
        return 1
    leaves = [one for one in tree_flatten(batch)[0] if not isinstance(one, int | float | None)]
    tensors = [one for one in leaves if isinstance(one, Tensor) and one.ndim]
    others = [type(one).__name__ for one in leaves if not isinstance(one, Tensor)]
    sizes = {len(one) for one in tensors}
    if len(sizes) != 1 or others or (first and max(sizes) < divided):
        got = ", ".join(map(str, [*others, *sorted(sizes)]))
        raise UsageError(f"a batch to divide into {divided} parts has as many rows, got {got}")
    mine = [(tuple(one.shape), float(one.double().sum())) for one in tensors]
    if first and mine != value_of_rank_0(mine):
        raise UsageError(
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank"
        )
    return max(sizes)
