"""`trial.prepare`: a training loop of the user's own under a trial's settings.

Model, optimizer, scheduler and loader stay those of the user, of their classes, with all their
attributes, methods and hooks. Methods of the model that take tensors compute in the trial's number
format; `step` and `zero_grad` of the optimizer, and `step` of the scheduler, act once an update.

The loop computes the same under every setting. The loader's batches are global: each rank computes
its rows of a batch, in as many parts as `accumulation` says, and each part counts by its items.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from itertools import chain, islice
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.distributed.utils import _apply_to_tensors
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map_only

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import ACCUMULATION, PRECISION
from search_spaces.plugins import nearest
from workers.context import Context
from workers.device.precision import HALF, Precision, in_fp32
from workers.functions.numbers import numbers_of
from workers.parallel import STRATEGIES
from workers.parallel.base import Strategy
from workers.parallel.mesh import from_rank_0, local
from workers.ranks import value_of_rank_0, values_of_all
from workers.training.setup import arrange, strategy_of
from workers.workload import ParallelPlan

from . import CLIP_NORM, LOCAL_BATCH_NORM, PREPARED

KINDS: Final[dict[str, Any]] = {
    "model": nn.Module,
    "optimizer": torch.optim.Optimizer,
    "scheduler": torch.optim.lr_scheduler.LRScheduler,
    "loader": Iterable,
}
# What gives and takes the states of random generators.
RANDOM: Final[Any] = (
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
    (
        lambda: torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        torch.cuda.set_rng_state_all,
    ),
)
_END: Final = object()
_CHANGED: Final = (
    "the loop has changed gradients that are those of a part, or scaled: clip them by "
    "trial.prepare(..., clip_norm=1.0), clear them by optimizer.zero_grad(), and leave out "
    "GradScaler"
)
_SELECTED: Final = ("Index", "MaskedSelect")  # nodes of `losses[mask]`
# Nodes that a term of a loss passes on its way to the sum of all terms; the means that it may be;
# and nodes of a term of weights alone, which is the same in each part.
_PASSED: Final = (
    *("AddBackward", "Sub", "Rsub", "MulBackward", "Div", "Neg"),
    *("ToCopy", "View", "Squeeze", "Unsqueeze", "Clone"),
)
_MEANS: Final = ("Mean", "MseLoss", "SmoothL1", "Huber", "BinaryCross", "SoftMargin", "Multi")
_OF_WEIGHTS: Final = ("Norm", "LinalgVectorNorm", "Pow", "Sum", "Mean", "Abs", "Exp", "Log", "Sqrt")


def prepare(context: Context, objects: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """See `Context.prepare`."""
    kinds = [next((n for n, kind in KINDS.items() if isinstance(one, kind)), "") for one in objects]
    given = dict(zip(kinds, objects, strict=True))
    _refuse(
        {
            "trial.prepare is called once: give it model, optimizer and loader": context.loop,
            "trial.prepare takes a model, and one each of an optimizer, a scheduler and a loader "
            f"of batches, got {', '.join(type(one).__name__ for one in objects) or 'nothing'}": (
                "model" not in given or "" in given or len(given) < len(objects)
            ),
        }
    )
    model = given["model"]
    values = _values(context, options, given)
    plan = ParallelPlan(
        tuple(_blocks(model, nn.ModuleList)) or tuple(_blocks(model, nn.Sequential))
    )
    context.loop = loop = PreparedLoop(context, values, plan, model)
    if context.world_size > 1:
        for held in (*model.parameters(), *model.buffers()):
            held.data.copy_(from_rank_0(held.detach().cpu()))
    # A strategy of parts moves the model from the CPU to the device by itself, part by part.
    model.to(loop.strategy.build_device)
    arrange(model, plan, values)
    loop.strategy.wrap_own(model)
    takes: dict[str, Callable[[Any], Any]] = {
        "model": loop.take_model,
        "optimizer": loop.take_optimizer,
        "scheduler": loop.take_scheduler,
        "loader": partial(PreparedLoader, loop),
    }
    results = tuple(takes[kind](one) for kind, one in given.items())
    # What `restore` has read before; else the ranks other than 0 get random numbers of their own.
    loop.load_state_dict(context.loop_state or loop.state_dict())
    return results[0] if len(results) == 1 else results


def _refuse(sentences: Mapping[str, Any]) -> None:
    """Raise a UsageError of the first sentence that holds."""
    for sentence in (one for one, holds in sentences.items() if holds):
        raise UsageError(sentence)


def _values(
    context: Context, options: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of the loop: the trial's parameters before those that the call gives.

    Raises:
        UsageError: an option is unknown, or cannot act on what is given.
    """
    model, optimizer = given["model"], given.get("optimizer")
    ranks = context.world_size
    values = {PARALLELISM.name: "ddp" if ranks > 1 else "single", **options, **context.params}
    strategy = values[PARALLELISM.name]
    kind: Any = STRATEGIES.get(strategy)
    known = [option.name for option in (*PREPARED, *kind.options)]
    parts = ACCUMULATION.value(values)
    normed = [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    _refuse(
        {
            f"trial.prepare has no option {name!r}: {nearest(name, known)}": True
            for name in options.keys() - known
        }
        | {
            f"parallelism {strategy} is for workloads alone: choose single, ddp, fsdp": (
                kind.apart or "tensor" in kind.needs.plan
            ),
            f"parallelism {strategy} loses hooks of parameters: register them after "
            "trial.prepare": (
                not kind.replicated and any(one._backward_hooks for one in model.parameters())
            ),
            f"accumulation {parts} divides the batches of a loader: prepare it too": (
                parts > 1 and "loader" not in given
            ),
            "with several ranks an optimizer has parameters of the model only, and is prepared "
            "before its first step and before its state is restored": (
                ranks > 1
                and optimizer is not None
                and (optimizer.state or _ids(optimizer) - {*map(id, model.parameters())})
            ),
            f"{', '.join(normed[:1])} normalises over the rows of a batch, so {strategy} on "
            f"{ranks} ranks with accumulation {parts} would compute something else; if that is "
            "fine, say trial.prepare(..., local_batch_norm=True)": (
                parts * ranks > 1 and normed and not LOCAL_BATCH_NORM.value(values)
            ),
        }
    )
    return {name: values[name] for name in values.keys() & known}


def _blocks(model: nn.Module, kind: type[nn.Module], prefix: str = "") -> Iterator[str]:
    # The members of the outermost modules of a kind.
    for name, child in model.named_children():
        if isinstance(model, kind):
            yield f"{prefix}{name}"
        else:
            yield from _blocks(child, kind, f"{prefix}{name}.")


class PreparedLoop:
    """One rank's part in a training loop of the user's own, and where in an update it is.

    Args:
        context: of the trial.
        values: of the options that are set.
        plan: of the model.
        model: before a strategy takes parameters out of it.

    Attributes:
        names: of the parameters that the model had, by their identities.
        divided: whether a batch is computed in parts, by this rank or by several.
        begun, microbatches: updates and their parts that the loader has given so far.
        part: the present microbatch of the `parts` of its update, on this rank; `done` of them had
            their backward pass.
        rows: of the present global batch; weight: of the present microbatch, the part of the rows
            that it has, or its tokens by `rows`; total: the sum of the weights of this update.
        skipped: whether fp16 has skipped the last update; skips: how many it has.
        since: updates since the last step of the scheduler, with those that were skipped.
        generators: from which the loader draws; order: their states at the beginning of the epoch,
            none if it has ended.
        kept: what gives and takes other states that a resumed loop needs.
        reduced: the parameters whose gradients DDP reduces, by their identities.
        epoch: batches and microbatches before the present epoch: a resumed loop begins it again.
    """

    begun = microbatches = part = done = since = skips = 0
    parts = rows = 1
    weight: float | Tensor = 1.0
    total: float | Tensor = 0.0
    skipped = unstepped = False
    seen: Sequence[tuple[int, int]] = ()
    epoch = reported = (0, 0)
    agreed = staticmethod(value_of_rank_0)  # a request to stop

    def __init__(
        self, context: Context, values: Mapping[str, Any], plan: ParallelPlan, model: nn.Module
    ) -> None:
        self.context = context
        # The random state that the loader draws from, before a strategy draws.
        self.loader_generator = torch.Generator().set_state(torch.get_rng_state())
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.precision = Precision(PRECISION.value(values), torch.device(context.device))
        self.accumulation = int(ACCUMULATION.value(values))
        self.clip = float(CLIP_NORM.value(values) or 0.0)
        self.divided = self.accumulation * context.world_size > 1
        self._stack = ExitStack()
        source = SimpleNamespace(plan=lambda model: plan)  # what a strategy asks of a workload
        self.strategy = self._stack.enter_context(
            strategy_of(context, source, values, torch.get_num_threads())
        )
        self.optimizer: Any = SimpleNamespace(updates=0, param_groups=[])  # until there is one
        scaler = self.precision.scaler
        self.kept: list[Any] = [*RANDOM, (scaler.state_dict, scaler.load_state_dict)]
        self.order: list[Tensor] = []
        self.generators: list[torch.Generator] = []
        self._reports: list[tuple[str, float, float]] = []  # of an update: name, number, weight

    def __reduce__(self) -> Any:
        # A copy of the prepared model is a plain one.
        return SimpleNamespace, (), {"done": 0, "parts": 1}

    def take_model(self, model: Any) -> Any:
        """Let the methods of the model compute here; `module` is the model, as DDP calls it.

        If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`, with
        whole tensors on the CPU.
        """
        # Methods of an object take the place of those of its class.
        model.zero_grad = partial(_clear, self, model.zero_grad)
        model.__dict__["module"] = getattr(model, "module", model)
        self.reduced = {id(one) for one in model.parameters() if one.requires_grad}
        methods = {
            name
            for kind in type(model).__mro__
            for name, member in vars(kind).items()
            if isinstance(member, FunctionType) and not kind.__module__.startswith("torch.")
        } - vars(nn.Module).keys()
        if not self.strategy.replicated:
            model.register_state_dict_post_hook(partial(_gather, self.strategy))
            model.register_load_state_dict_pre_hook(
                lambda model, state, *_: state.update(
                    self._parts(model.named_parameters(remove_duplicate=False), state)
                )
            )
            for name in methods:
                register_fsdp_forward_method(model, name)
        for name in {"forward", *methods} if self.precision.name in HALF else ():
            setattr(model, name, partial(_computed, self.precision, getattr(model, name)))
        return model

    def take_optimizer(self, optimizer: Any) -> Any:
        """Let the optimizer update this rank's parameters; `updates` is how many there were.

        If ranks hold parts of the model, every rank calls `state_dict` and `load_state_dict`. The
        state is that of torch, with whole tensors, so it fits any strategy, and one of plain torch
        loads.
        """
        held = self.strategy.parameters()
        for group in optimizer.param_groups:
            group["params"] = [held.get(self.names.get(id(p), ""), p) for p in group["params"]]
        plain_step = optimizer.step

        @wraps(plain_step)  # with the marks of schedulers
        def step(optimizer: Any, closure: Any = None) -> Any:
            return self.step(plain_step, closure)

        self.optimizer = optimizer
        optimizer.step = MethodType(step, optimizer)
        optimizer.updates = 0
        optimizer.zero_grad = partial(_clear, self, optimizer.zero_grad)
        if self.divided or self.precision.scaler.is_enabled():
            optimizer._step_supports_amp_scaling = True  # so a scaler of the loop's is noticed
            self._stack.callback(register_optimizer_step_pre_hook(partial(_no_other, self)).remove)
        if not self.strategy.replicated:
            optimizer.register_state_dict_post_hook(partial(_gather, self.strategy))
            optimizer.register_load_state_dict_pre_hook(
                lambda optimizer, state: {
                    **state,
                    "state": self._parts(
                        # torch compares their counts
                        zip(_members(state), _members(vars(optimizer)), strict=False),
                        state["state"],
                    ),
                }
            )
        return optimizer

    def take_scheduler(self, scheduler: Any) -> Any:
        """Let `step` act once an update, and at the end of an epoch.

        An update that fp16 has skipped is no step of a scheduler that steps after each update.
        """
        kind = type(scheduler)

        def step(scheduler: Any, *arguments: Any, **named: Any) -> None:
            if not 0 < self.done < self.parts:
                if self.since != 1 or not self.skipped:
                    kind.step(scheduler, *arguments, **named)
                self.since = 0

        plain = {"__reduce__": lambda one: (kind.__new__, (kind,), vars(one))}  # its copies
        scheduler.__class__ = type(kind.__name__, (kind,), {"step": step, **plain})
        self.kept.append((scheduler.state_dict, scheduler.load_state_dict))
        return scheduler

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """See `Context.backward`."""
        _refuse(
            {
                f"precision {self.precision.name} acts in the prepared model and its methods, and "
                "the loop has called none, but parts of it: call the model, or a method of its "
                "own": self.precision.name in HALF and not self.precision.acted,
                "a batch is computed in parts, each of which has one backward pass before the "
                "loader gives the next: do not make a list of the prepared loader, fetch no batch "
                "ahead, and add the losses of a part up": self.divided and self.done != self.part,
                "call optimizer.step() after each trial.backward(loss), where it acts once an "
                "update: a loop that adds up gradients itself needs accumulation 1": (
                    self.unstepped and self.accumulation > 1
                ),
                _CHANGED: self.divided and self.part and self._changed(),
            }
        )
        if self.divided:
            items = weight_of(loss) if weight is None else weight
            if items is not None:
                self.weight = items / self.rows if self.weight else 0.0
            counted = torch.as_tensor(self.weight, dtype=torch.float32, device=loss.device)
            self.total = self.total + counted
            if self.part + 1 == self.parts and self.context.world_size > 1:
                dist.all_reduce(self.total)
            # The mean over no items is no number.
            loss = torch.where(counted > 0, loss, torch.zeros_like(loss)) * (
                counted / self.total if self.parts == 1 else counted
            )
        self.done = self.part + 1
        with self.strategy.synchronised(self.done == self.parts):
            scaled: Any = self.strategy.joined(self.precision.scaler.scale(loss))
            (scaled * self.strategy.mean_over()).backward()
        self.seen = self._gradients()
        self.unstepped = bool(self.seen)

    def _trained(self) -> list[Any]:
        # The parameters of the optimizer that have gradients.
        return [one for one in _members(vars(self.optimizer)) if one.grad is not None]

    def _gradients(self) -> list[tuple[int, int]]:
        # Each of the optimizer, and how often it was changed.
        return [(id(one.grad), local(one.grad)._version) for one in self._trained()]

    def _changed(self) -> bool:
        # Whether the loop has changed the gradients since the last backward pass.
        return self._gradients() != self.seen or hasattr(self.optimizer, "found_inf")

    def step(self, update: Callable[..., Any], closure: Any = None) -> Any:
        """After the last part of an update weigh, unscale and clip the gradients, and call
        `update`, the step of the optimizer, unless fp16 has overflowed.

        Args:
            update: the step.
            closure: computes the loss again, as often as the step likes; or None.
        """
        scaler = self.precision.scaler
        trained = [] if closure else self._trained()
        _refuse(
            {
                "optimizer.step(closure) computes the loss of a whole batch again: it needs one "
                "rank, accumulation 1, no clip_norm and another precision than fp16": (
                    closure and (self.divided or scaler.is_enabled() or self.clip)
                ),
                "the gradients are not those of the present batch: after trial.prepare, call "
                "trial.backward(loss), which knows of precision, accumulation and ranks, in place "
                "of loss.backward(), and step before the next batch": trained and not self.done,
                "ddp reduces the gradients of parameters that were trained at trial.prepare: "
                "freeze others after it, or take fsdp": (
                    self.strategy.replicated
                    and self.context.world_size > 1
                    and not self.reduced.issuperset(map(id, trained))
                ),
                _CHANGED: trained and (scaler.is_enabled() or self.parts > 1) and self._changed(),
            }
        )
        self.unstepped = False
        if 0 < self.done < self.parts:
            return None
        total, self.done, self.total = self.total, 0, 0.0
        if not trained:
            self.optimizer.updates += bool(closure)
            return update(closure) if closure else update()
        self.strategy.finish_gradients()
        # What the scaler needs of an optimizer; it must not call the step that calls it.
        plain: Any = SimpleNamespace(param_groups=self.optimizer.param_groups, step=update)
        scaler.unscale_(plain)
        if self.parts > 1:
            torch._foreach_mul_([local(one.grad) for one in trained], 1.0 / total)
        if self.clip:
            self.strategy.scale_gradients(
                (self.clip / (self.strategy.grad_norm() + 1e-6)).clamp(max=1.0)
            )
        before = scaler.get_scale()
        result = scaler.step(plain)
        scaler.update()
        self.skipped = scaler.get_scale() < before
        if self.skipped:
            self.context.details["skipped_updates"] = self.skips = self.skips + 1
        self.since += 1
        self.optimizer.updates += not self.skipped
        return result

    def _parts(self, held: Iterable[tuple[Any, Any]], state: Mapping[Any, Any]) -> dict[Any, Any]:
        """The values of a state with this rank's part of each tensor.

        Args:
            held: keys of the state, each with its parameter, as whose parts the tensors are placed.
            state: of whole tensors.
        """
        return {
            key: tree_map_only(
                Tensor, partial(self.strategy.scatter, like=like, name=str(key)), state[key]
            )
            for key, like in held
            if key in state
        }

    def state_dict(self) -> dict[str, Any]:
        """What `trial.save` keeps of the loop itself: orders, random numbers, the schedule."""
        return {
            "counts": [
                self.optimizer.updates,
                *(self.epoch if self.order else (self.begun, self.microbatches)),
            ],
            "kept": [get() for get, _ in self.kept],
            "order": self.order or [one.get_state() for one in self.generators],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; ranks with other rows draw numbers of their own."""
        self.optimizer.updates, self.begun, self.microbatches = state["counts"]
        setters = [*(put for _, put in self.kept), *(one.set_state for one in self.generators)]
        for put, one in zip(setters, (*state["kept"], *state["order"]), strict=False):
            put(one)
        if self.context.rank:
            torch.manual_seed(hash((self.context.seed, self.context.rank, self.microbatches)))

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """See `Context.report`: the mean over the microbatches of an update, and over ranks.

        A step that counts microbatches from 0 or from 1 becomes the number of the update, so steps
        of trials with different accumulation compare.
        """
        if self._reports and self.reported[0] != self.begun:
            self._send()
        weight = float(self.weight) or 1e-300  # an empty share counts only if there is no other
        self._reports += [(name, number, weight) for name, number in numbers_of(metrics).items()]
        if step - self.microbatches in (-1, 0):
            step += self.begun - self.microbatches
        self.reported = (self.begun, int(step))
        return self._send() if self.part + 1 == self.parts else self.context.stop is None

    def _send(self) -> bool:
        rows = [*chain(*values_of_all(self._reports))]
        self._reports = []
        means = {
            name: np.average(
                [number for other, number, _ in rows if other == name],
                weights=[weight for other, _, weight in rows if other == name],
            )
            for name in dict.fromkeys(name for name, *_ in rows)
        }
        return self.context.emit(self.reported[1], means)

    def close(self, *, failed: bool) -> None:
        """The loop has ended: send what waits, part from the other ranks, put switches back."""
        if not failed and self._reports:
            self._send()
        if not failed or self.context.world_size == 1:  # else the processes of all ranks end
            self._stack.close()


def _computed(precision: Precision, method: Any, *inputs: Any, **named: Any) -> Any:
    """Call a method of the model; the outermost that takes tensors returns them in fp32."""
    widens = not torch.is_autocast_enabled(precision.device.type) and any(
        isinstance(leaf, Tensor) for leaf in tree_leaves((inputs, named))
    )
    precision.acted = True
    with precision.autocast():
        output = method(*inputs, **named)
    return _apply_to_tensors(in_fp32, output) if widens else output


def _clear(loop: PreparedLoop, clear: Callable[..., None], set_to_none: bool = True) -> None:
    if not 0 < loop.done < loop.parts:  # else they wait for further parts of their update
        loop.unstepped = False
        clear(set_to_none)


def _no_other(loop: PreparedLoop, other: Any, *_: Any) -> None:
    _refuse(
        {
            "under accumulation, fp16 or several ranks only the optimizer that trial.prepare was "
            f"given may step, and here is another {type(other).__name__}: give one optimizer the "
            "parameters of both, or train one model as parallelism single, accumulation 1": (
                loop.begun and _ids(other) - _ids(loop.optimizer)
            )
        }
    )


def _gather(strategy: Strategy, owner: Any, state: dict[str, Any], *_: Any) -> None:
    # As a hook of torch has it, in place: whole tensors on the CPU.
    state |= tree_map_only(Tensor, lambda t: strategy.gather(t.detach(), "").cpu(), {**state})


def _members(state: Mapping[str, Any]) -> Iterator[Any]:
    return chain(*(group["params"] for group in state["param_groups"]))


def _ids(optimizer: Any) -> set[int]:
    return set(map(id, _members(vars(optimizer))))


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from a random state of torch of its own, the same on every rank: its batches
    depend neither on the strategy, nor on what the model draws. Its state is of the beginning of
    an epoch that has not ended.
    """

    def __init__(self, loop: PreparedLoop, loader: Any) -> None:
        self._loop = loop
        self._loader = loader
        samplers = [getattr(loader, name, None) for name in ("sampler", "batch_sampler")]
        drawing = (loader, *samplers, getattr(samplers[1], "sampler", None))
        found = (self._loop.loader_generator, *(getattr(one, "generator", None) for one in drawing))
        loop.generators = [one for one in found if isinstance(one, torch.Generator)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) * self._loop.accumulation

    def __iter__(self) -> Iterator[Any]:
        loop, rank, ranks = self._loop, self._loop.context.rank, self._loop.context.world_size
        loop.order = [one.get_state() for one in loop.generators]
        loop.epoch = loop.begun, loop.microbatches
        batches = self._drawn(iter, self._loader)
        while (batch := self._drawn(next, batches, _END)) is not _END:
            if isinstance(batch, Mapping) and not isinstance(batch, dict):
                batch = dict(batch)  # such as the batches of transformers
            if loop.divided:
                loop.rows = num_rows(batch, ranks * loop.accumulation, first=not loop.begun)
                loop.done, loop.total = 0, 0.0  # an update that the loop has left out is forgotten
            loop.begun += 1
            loop.parts = max(1, min(loop.accumulation, loop.rows // ranks))
            shares = np.array_split(np.array_split(np.arange(loop.rows), ranks)[rank], loop.parts)
            for loop.part, share in enumerate(shares):
                loop.weight = len(share) / loop.rows
                loop.microbatches += 1
                # A part without rows has one that does not count.
                cut = slice(int(share[0]), int(share[-1]) + 1) if len(share) else slice(1)
                yield tree_map_only(Tensor, partial(_rows, cut, loop), batch)
        loop.order = []
        if loop.divided:  # there is none to train
            loop.part, loop.parts = -1, 0

    def _drawn(self, draw: Callable[..., Any], *arguments: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._loop.loader_generator.get_state())
            result = draw(*arguments)
            self._loop.loader_generator.set_state(torch.get_rng_state())
        return result


def _rows(cut: slice, loop: PreparedLoop, tensor: Tensor) -> Tensor:
    return (tensor[cut] if loop.divided and tensor.ndim else tensor).to(
        loop.precision.device, non_blocking=True
    )


def num_rows(batch: Any, divided: int, *, first: bool) -> int:
    """The rows of a batch that is divided into parts.

    Raises:
        UsageError: it cannot be divided into so many parts, or it is the first and has fewer rows,
            or other ones than on rank 0.
    """
    rows = [
        one
        for one in tree_leaves(batch)
        if not isinstance(one, int | float | None) and getattr(one, "ndim", True)
    ]
    sizes: Any = {len(one) if isinstance(one, Tensor) else type(one).__name__ for one in rows}
    whole = len(sizes) == 1 and all(type(n) is int and n >= divided * first for n in sizes)
    mine = [(tuple(one.shape), float(one.double().sum())) for one in rows if first and whole]
    _refuse(
        {
            f"a batch to divide into {divided} parts has as many rows, "
            f"got {', '.join(sorted(map(str, sizes)))}": not whole,
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank": (
                first and whole and mine != value_of_rank_0(mine)
            ),
        }
    )
    return int(sizes.pop())


def weight_of(loss: Tensor) -> float | Tensor | None:
    """By what a loss counts beside those of other parts; None if it is by the rows of the part.

    A mean over tokens that are not padding counts by its tokens. torch keeps their number for the
    backward pass, so it is read from the graph that autograd has recorded.

    Raises:
        UsageError: the loss is no mean over rows, or it has a term that is a mean over fewer items
            than it looks.
    """
    nodes: list[Any] = [(loss.grad_fn, 0.0)] if loss.grad_fn else []  # with what divides them
    terms: list[tuple[Any, float | None]] = []  # items of each, and how many there seem to be
    for node, divisor in islice(nodes, 32):  # nodes are added; a sum of thousands ends somewhere
        name, before = node.name(), [one for one, _ in node.next_functions if one is not None]
        count: Any = node._saved_other if name.startswith("Div") else None
        by_tensor = isinstance(count, Tensor) and not _is_number(count)
        # 2 is torch's number of this reduction.
        summed = name == "SumBackward0" or getattr(node, "_saved_reduction", None) == 2
        if by_tensor and not count.requires_grad:
            terms.append((count.detach(), -1.0 if before[0].name().startswith("Sum") else 0.0))
        elif name.startswith(_PASSED) and (
            not name.startswith(("Mul", "Div")) or sum(map(_varies, before)) < 2
        ):
            nodes += [
                (one, divisor if count is None or by_tensor else float(count)) for one in before
            ]
        elif name.startswith("NllLoss") and not summed:
            seen = -1.0 if _selects(node) else node._saved_target.numel()
            terms.append((node._saved_total_weight, seen))
        elif name.startswith((*_MEANS, "NllLoss")) or (summed and _varies(node)):
            sizes = getattr(node, "_saved_self_sym_sizes", None) or node._saved_self.shape
            if summed and divisor not in (sizes[0], math.prod(sizes)):
                terms.append((0.0, 0.0))
            else:
                items = divisor if summed else float(math.prod(sizes))
                terms.append((items, -1.0) if _selects(node) else (None, None))
        elif _varies(node) and not name.startswith("CompiledFunction"):
            terms.append((0.0, 0.0))
    counts = [items for items, _ in terms if items is not None]
    alike = len(counts) == len(terms) and (len(terms) == 1 or len(set(map(float, counts))) == 1)
    _refuse(
        {
            "the loss is no mean over rows, such as a sum or a root, or it has a term that is a "
            "mean over fewer items than rows, such as tokens that are not padding: make it a mean, "
            "and say trial.backward(loss, weight=tokens)": (
                any(seen == 0.0 for _, seen in terms)
                or not (alike or all(float(one) == seen for one, seen in terms if one is not None))
            )
        }
    )
    return counts[0] if alike and terms else None


def _varies(node: Any) -> bool:
    # Whether a term is more than a function of weights.
    return "AccumulateGrad" not in node.name() and (
        not node.name().startswith((*_OF_WEIGHTS, *_PASSED))
        or any(_varies(one) for one, _ in node.next_functions if one is not None)
        or getattr(getattr(node, "_saved_other", None), "ndim", 0) > 0
    )


def _selects(node: Any, depth: int = 3) -> bool:
    # Whether a mean is over what a mask has selected, a few nodes before.
    return node.name().startswith(_SELECTED) or (
        depth > 0 and any(_selects(one, depth - 1) for one, _ in node.next_functions if one)
    )


def _is_number(tensor: Tensor) -> bool:
    # Of Python: torch marks it as such, so that it widens no tensor of a narrow format.
    narrow = torch.ones((), dtype=torch.float16 if tensor.is_floating_point() else torch.int8)
    return torch.result_type(tensor, narrow) != tensor.dtype
