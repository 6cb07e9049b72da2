"""What `trial.prepare` returns: the user's own model, optimizer and scheduler, and its loader.

The objects stay those of the user, of their classes, with all their attributes, methods and hooks.
Methods of the model that take tensors compute in the trial's number format; `step`, `zero_grad` and
the state of the optimizer, and `step` of the scheduler, act once an update.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn.modules.module import _IncompatibleKeys
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_flatten

from search_spaces.errors import UsageError
from workers.parallel.transfers import is_sharded
from workers.ranks.process_group import value_of_rank_0

from .loop import PreparedLoop

_END: Final = object()
_LOOP: Final = "_prepared_loop"
_MOMENTS: Final = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg")


def prepared_model(model: nn.Module, loop: PreparedLoop) -> nn.Module:
    """The model itself, of a subclass of its class whose methods go through the loop.

    `module` is the model, as DDP calls it. Every rank calls `state_dict` and `load_state_dict`. If
    ranks hold parts of the model, the state has its whole tensors, on the CPU of rank 0; it is
    empty on other ranks. A copy of the model is a plain one.
    """
    kind = type(model)
    body: dict[str, Any] = dict(vars(_Prepared))
    for name in ("__dict__", "__weakref__", "__annotations__"):
        body.pop(name, None)
    body |= {"_prepared_class": kind, "__module__": kind.__module__, "__doc__": kind.__doc__}
    for base in reversed(kind.__mro__[: kind.__mro__.index(nn.Module)]):
        if base.__module__.startswith("torch.distributed."):
            continue
        for name, method in vars(base).items():
            own = isinstance(method, FunctionType) and not name.startswith("__")
            if own and name not in body and not inspect.isgeneratorfunction(method):
                body[name] = _through_the_loop(kind, name)
    if hasattr(model, "module"):
        del body["module"]  # the user's own
    model.__dict__[_LOOP] = loop
    model.__class__ = type(kind.__name__, (kind,), body)
    register_fsdp_forward_method(model, "_prepared_run")
    return model


def _through_the_loop(kind: type[nn.Module], name: str) -> Callable[..., Any]:
    inner = getattr(kind, name)

    @wraps(inner)
    def method(self: Any, *inputs: Any, **named: Any) -> Any:
        loop = self.__dict__.get(_LOOP)
        if loop is None or loop.inside or not _has_tensors(inputs, named):
            return inner(self, *inputs, **named)
        return loop.call(self._prepared_run, inner, *inputs, **named)

    return method


def _has_tensors(*values: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_flatten(values)[0])


class _Prepared(nn.Module):
    """The methods of the subclass; see `prepared_model`."""

    _prepared_class: type[nn.Module]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        loop = self.__dict__[_LOOP]
        call = partial(self._prepared_class.__call__, self)
        return call(*inputs, **named) if loop.inside else loop.call(call, *inputs, **named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, and what is pickled, is a model of the user's class without the loop."""
        reduced: Any = self._prepared_class.__reduce_ex__(self, protocol)
        _, (_, *arguments), state, *rest = reduced
        state = {
            name: value for name, value in state.items() if name not in (_LOOP, "_prepared_run")
        }
        return (_new, (self._prepared_class, *arguments), state, *rest)

    @property
    def module(self) -> Any:
        """The model."""
        return self

    def _prepared_run(self, method: Any, *inputs: Any, **named: Any) -> Any:
        return method(self, *inputs, **named)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, unless they wait for the update."""
        if self.__dict__[_LOOP].may_clear:
            self._prepared_class.zero_grad(self, set_to_none)

    def state_dict(self, *given: Any, **named: Any) -> Any:
        """See `prepared_model`; a parameter of several names is there under each."""
        strategy = self.__dict__[_LOOP].strategy
        if given or named or strategy.replicated:
            return self._prepared_class.state_dict(self, *given, **named)
        state: dict[str, Any] = dict(strategy.state())
        first = _first_names(self)
        for name, value in nn.Module.state_dict(self).items():
            if not isinstance(value, Tensor):
                state[name] = value
            elif first.get(name) in state:
                state[name] = state[first[name]]
        return state

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        """Overwrite the weights by those of rank 0, with the checks of torch."""
        loop = self.__dict__[_LOOP]
        if assign:
            raise UsageError(
                "load_state_dict(assign=True) would put parameters in place of those that the "
                "optimizer updates: call it before trial.prepare"
            )
        if loop.strategy.replicated:
            keys = self._prepared_class.load_state_dict(self, state, strict)
            loop.equal_on_all_ranks(self)
            return keys
        return _load_parts(self, loop, state, strict)


def _new(kind: type, *arguments: Any) -> Any:
    return kind.__new__(kind, *arguments)


def _first_names(model: nn.Module) -> dict[str, str]:
    """The first name of a parameter by each of its names."""
    names: dict[int, str] = {}
    found = model.named_parameters(remove_duplicate=False)
    return {name: names.setdefault(id(parameter), name) for name, parameter in found}


def _load_parts(model: nn.Module, loop: PreparedLoop, state: Any, strict: bool) -> Any:
    """`load_state_dict` of a model whose ranks hold parts; the state is that of rank 0."""
    held = nn.Module.state_dict(model)
    missing = [name for name in held if name not in state]
    unexpected = [name for name in state if name not in held]
    tensors = {name: state[name] for name in state if isinstance(held.get(name), Tensor)}
    wrong = [
        f"size mismatch for {name}: {tuple(value.shape)}, the model has {tuple(held[name].shape)}"
        for name, value in tensors.items()
        if value.shape != held[name].shape
    ]
    missing, unexpected, wrong = value_of_rank_0((missing, unexpected, wrong))
    if strict:
        wrong += [f"missing: {', '.join(missing)}"] * bool(missing)
        wrong += [f"unexpected: {', '.join(unexpected)}"] * bool(unexpected)
    if wrong:
        name = type(model).__name__
        raise RuntimeError(f"Error(s) in loading state_dict for {name}: {'; '.join(wrong)}")
    first = _first_names(model)
    loop.strategy.load({first.get(name, name): one for name, one in tensors.items()}, partly=True)
    others = {name: state[name] for name in state if name in held and name not in tensors}
    if others:
        nn.Module.load_state_dict(model, others, strict=False)
    return _IncompatibleKeys(missing, unexpected)


def prepared_optimizer(optimizer: Optimizer, loop: PreparedLoop) -> Optimizer:
    """The optimizer itself; `step` and `zero_grad` act once an update, not at each microbatch.

    Every rank calls `state_dict` and `load_state_dict`. The state is that of torch, with whole
    tensors, so it fits any strategy, and one of plain torch can be loaded. `updates` is how many
    updates there were, also in earlier attempts if the state is restored.
    """
    step, zero_grad = optimizer.step, optimizer.zero_grad
    plain_state, load_plain = optimizer.state_dict, optimizer.load_state_dict

    def update(self: Any, closure: Any = None) -> Any:
        if closure is not None:
            raise UsageError("the step of a prepared optimizer takes no closure")
        result = loop.step(step)
        self.updates = loop.updates
        return result

    def clear(self: Any, set_to_none: bool = True) -> None:
        if loop.may_clear:
            zero_grad(set_to_none)

    def state_dict(self: Any) -> dict[str, Any]:
        return {**_changed(self, plain_state(), loop.gathered), "prepared": loop.counts()}

    def load_state_dict(self: Any, state: Mapping[str, Any]) -> None:
        given = {name: value for name, value in state.items() if name != "prepared"}
        load_plain(_changed(self, given, partial(_placed, loop)))
        if "prepared" in state:
            loop.load_counts(state["prepared"])
        self.updates = loop.updates

    if getattr(step, "_wrapped_by_lr_sched", False):  # a scheduler looks for it
        update._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    for method in (update, clear, state_dict, load_state_dict):
        name = {"update": "step", "clear": "zero_grad"}.get(method.__name__, method.__name__)
        setattr(optimizer, name, MethodType(method, optimizer))
    optimizer.updates = 0  # type: ignore[attr-defined]
    return optimizer


def _changed(optimizer: Any, state: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """A state of torch, in which each value is changed, given its key and its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    found = dict(state["state"])
    for number, parameter in zip(numbers, parameters, strict=False):  # torch compares their counts
        if number in found:
            entries = found[number].items()
            found[number] = {key: change(key, value, parameter) for key, value in entries}
    return {**state, "state": found}


def _placed(loop: PreparedLoop, key: str, value: Any, parameter: Tensor) -> Any:
    """A value of an optimizer's state as this rank holds it."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        if key in _MOMENTS:
            got = tuple(getattr(value, "shape", ()))
            raise UsageError(
                f"the optimizer's state has {key} of shape {got} for a parameter of shape "
                f"{tuple(parameter.shape)}: it is of another model"
            )
        return value
    if is_sharded(parameter):
        return loop.strategy.scatter(value, parameter, loop.names[id(parameter)])
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)  # in the same layout


def prepared_scheduler(scheduler: LRScheduler, loop: PreparedLoop) -> LRScheduler:
    """The scheduler itself; `step` acts once an update, and at the end of an epoch.

    An update that fp16 has skipped is no step of a scheduler that steps after each update.
    """
    kind: Any = type(scheduler)
    calls = [0]

    def step(self: Any, *arguments: Any, **named: Any) -> None:
        if loop.waiting:
            return
        calls[0] += 1
        if not (loop.skipped and calls[0] == loop.attempted):
            kind.step(self, *arguments, **named)

    body = {"step": step, "__module__": kind.__module__, "__doc__": kind.__doc__}
    scheduler.__class__ = type(kind.__name__, (kind,), body)
    return scheduler


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from a random state of torch of its own, the same on every rank: its batches
    depend neither on the strategy, nor on what the model draws.
    """

    def __init__(self, loop: PreparedLoop, loader: Any) -> None:
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            raise UsageError("trial.prepare shares batches out: leave DistributedSampler out")
        loop.loads = True
        loop.loader = self
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
        return self._epoch or self._now()

    def _now(self) -> dict[str, Any]:
        others = [generator.get_state() for generator in self._generators.values()]
        return {"torch": self._state, "generators": others}

    def go_on(self, order: Mapping[str, Any]) -> None:
        """The inverse of `order`."""
        self._state, self._epoch = order["torch"], None
        for generator, state in zip(self._generators.values(), order["generators"], strict=False):
            generator.set_state(state)

    def __iter__(self) -> Iterator[Any]:
        self._epoch = self._now()
        with self._drawing():
            batches = iter(self._loader)
        while True:
            with self._drawing():
                batch = next(batches, _END)
            if batch is _END:
                self._epoch = None
                self._loop.ended_untrained = not self._loop.trained
                return
            if self._loop._begun == 0 and self._loop.strategy.batch_degree > 1:
                _check_same(batch)
            yield from self._loop.microbatches_of(batch)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(before)


def _check_same(batch: Any) -> None:
    """Raise UsageError if rank 0 has drawn another first batch."""
    leaves = [one for one in tree_flatten(batch)[0] if isinstance(one, Tensor)]
    mine = [(tuple(one.shape), float(one.double().sum())) for one in leaves]
    if mine != value_of_rank_0(mine):
        raise UsageError(
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank"
        )
