"""`trial.prepare` and `trial.backward`: the trainer's pieces around a loop of the user's own.

The loop computes the same under every setting. The loader's batches are global: each rank computes
its rows of a batch, in as many parts as `accumulation` says, and each part counts by its rows.
"""

import fnmatch
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from search_spaces.errors import UsageError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.compilation import COMPILE_SCOPE
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.precision import PRECISION
from search_spaces.knobs.runtime import (
    ACTIVATION_CHECKPOINTING,
    COMPACT_MEMORY,
    COMPILE,
    CUDNN_AUTOTUNE,
    MATMUL_PRECISION,
    OPTIMIZER_IMPLEMENTATION,
    RECORDS_GRAPHS,
    THREADS,
)
from search_spaces.plugins import nearest
from workers.context import Context
from workers.data.batch import Batch, BatchShare, num_rows
from workers.device.precision import HALF, Precision
from workers.functions.numbers import numbers_of
from workers.parallel import STRATEGIES
from workers.parallel.base import ModuleStrategy
from workers.parallel.mesh import Mesh
from workers.parallel.transfers import sent
from workers.protocol import LOGS
from workers.ranks.process_group import connect, side_group, value_of_rank_0
from workers.workload import ParallelPlan

from .knobs import CLIP_NORM, LOCAL_BATCH_NORM, PREPARED
from .optimizers import implementation
from .setup import arrange, switches
from .step import ClippedStep

_SWITCHES: Final = (PRECISION, MATMUL_PRECISION, CUDNN_AUTOTUNE, COMPACT_MEMORY, THREADS)
Blocks = Sequence[str] | type[nn.Module]


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
    given = Given.of(objects)
    values = _values(context, options or {})
    plan = plan_of(given.model, blocks, tensor_plan or {})
    check(given, plan, values, context.world_size)
    context.loop = loop = PreparedLoop(context, values, plan)
    found = loop.adopt(given)
    results = tuple(None if one is None else found[id(one)] for one in objects)
    return results[0] if len(results) == 1 else results


@dataclass
class Given:
    """What the user has given to `prepare`, each of it by its kind."""

    model: nn.Module | None = None
    optimizer: Optimizer | None = None
    scheduler: LRScheduler | None = None
    loader: Any = None

    @classmethod
    def of(cls, objects: Sequence[Any]) -> "Given":
        """Tell the kinds apart; None stands for what is left out."""
        found = cls()
        for one in objects:
            name = _kind(one)
            if one is not None and getattr(found, name) is not None:
                raise UsageError(f"trial.prepare takes one {name}, got two")
            if one is not None:
                setattr(found, name, one)
        return found


def _kind(one: Any) -> str:
    kinds = {nn.Module: "model", Optimizer: "optimizer", LRScheduler: "scheduler"}
    for kind, name in kinds.items():
        if isinstance(one, kind):
            return name
    if one is not None and not isinstance(one, Iterable):
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


def check(given: Given, plan: ParallelPlan, values: Mapping[str, Any], ranks: int) -> None:
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
    if isinstance(given.optimizer, torch.optim.LBFGS):
        raise UsageError("trial.prepare takes no LBFGS, which calls the loss by itself")
    if given.model is None:
        acting = [o for o in PREPARED if o is not ACCUMULATION and o.name in values]
        changed = [o.name for o in acting if o.value(values) != o.unset]
        if given.optimizer is not None or changed:
            what = "an optimizer" if given.optimizer is not None else ", ".join(changed)
            raise UsageError(f"{what} needs the model: trial.prepare(model, optimizer, loader)")
        return
    _check_model(given.model, plan, values, ranks)


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


class _Planned:
    """What a strategy asks of a workload: the plan."""

    def __init__(self, plan: ParallelPlan) -> None:
        self._plan = plan

    def plan(self, model: nn.Module) -> ParallelPlan:
        """See `Trainable.plan`."""
        return self._plan

    def weight(self, batch: Batch) -> float:
        """The loss is a mean over rows."""
        return float(num_rows(batch))

    def bucketed(self, batch: Batch) -> Batch:
        """See `Trainable.bucketed`."""
        return batch


class PreparedLoop:
    """One rank's part in a training loop of the user's own, and where in an update it is.

    Args:
        context: of the trial.
        values: of the options that are set.
        plan: of the model.

    Attributes:
        updates: of the optimizer so far.
        microbatches: begun so far, also in earlier attempts if the optimizer's state is restored.
        last: whether the present microbatch is the last of its update.
        waiting: whether gradients wait for the optimizer's step.
    """

    def __init__(self, context: Context, values: Mapping[str, Any], plan: ParallelPlan) -> None:
        self.context = context
        self.values = values
        self.device = torch.device(context.device)
        self.precision = Precision(PRECISION.value(values), self.device)
        self.accumulation = int(ACCUMULATION.value(values))
        self._stack = ExitStack()
        self._enter_switches()
        _meet(context, self.device)
        kind: Any = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, values))
        self._source: Any = _Planned(plan)
        self.strategy: ModuleStrategy = kind(mesh, self._source, self.device, values)
        self.updates = 0
        self.microbatches = 0
        self.waiting = False
        self._loads = False
        self._part = (0, self.accumulation)  # of the present update: from 0, and of how many
        self._over = False  # the present microbatch has had its backward pass
        self._weight = 1.0 / self.accumulation / self.strategy.batch_degree
        self._begun = 0  # updates
        self._reports = _Reports()
        self._step: Callable[[], Any] = lambda: None

    @property
    def last(self) -> bool:
        """See the class."""
        return self._part[0] == self._part[1] - 1

    def _enter_switches(self) -> None:
        """Set what the options that are set say; the rest of the process stays as it is."""
        context, values = self.context, self.values
        if CUDNN_AUTOTUNE.value(values) and self.device.type == "cuda":
            context.worker_spent = True  # cuDNN's choices stay in the process
        if any(option.name in values for option in _SWITCHES):
            present = {
                CUDNN_AUTOTUNE.name: torch.backends.cudnn.benchmark,
                THREADS.name: torch.get_num_threads(),
            }
            threads = context.assignment.threads
            self._stack.enter_context(switches({**present, **values}, threads, self.device))
        else:
            for name in KNOBS.names():
                self._stack.enter_context(KNOBS.get(name)().applied(values))

    def adopt(self, given: Given) -> dict[int, Any]:
        """What the user gets for each object that they have given, by its identity."""
        found: dict[int, Any] = {}
        if given.loader is not None:
            self._loads = True
            state = value_of_rank_0(_random_state())
            found[id(given.loader)] = PreparedLoader(self, given.loader, state)
        if given.model is not None:
            names = {id(p): name for name, p in given.model.named_parameters()}
            self._wrap(given.model)
            found[id(given.model)] = PreparedModel(self)
        if given.optimizer is not None:
            self._take(given.optimizer, names)
            found[id(given.optimizer)] = PreparedOptimizer(self, given.optimizer)
        if given.scheduler is not None:
            found[id(given.scheduler)] = PreparedScheduler(self, given.scheduler)
        if self.context.world_size > 1:  # so that rows of different ranks get different dropout
            torch.manual_seed(self.context.seed + self.context.rank // self.strategy.mesh.tensor)
        return found

    def _wrap(self, model: nn.Module) -> None:
        """Let the strategy take the model over, with the weights of rank 0."""
        model.to(torch.device("cpu") if self._builds_elsewhere else self.device)
        if self.context.world_size > 1:
            held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            with torch.no_grad():
                for name, whole in sent({name: t.detach() for name, t in held.items()}):
                    held[name].copy_(whole)
        arrange(model, self._source.plan(model), self.values)
        self.strategy.wrap(model)

    @property
    def _builds_elsewhere(self) -> bool:
        """Whether the strategy moves a model from the CPU to the device, part by part."""
        return self.strategy.build_device != self.device

    def _take(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """Let the optimizer update this rank's parameters, by the kernels that the option names."""
        own = [p for group in optimizer.param_groups for p in group["params"]]
        several = self.context.world_size > 1
        if several and any(id(p) not in names for p in own):
            raise UsageError("with several ranks an optimizer has parameters of the model only")
        if several and optimizer.state:
            raise UsageError("prepare the optimizer before its first step, then restore its state")
        held = self.strategy.parameters()
        for group in optimizer.param_groups:
            group["params"] = [held.get(names.get(id(p), ""), p) for p in group["params"]]
            if OPTIMIZER_IMPLEMENTATION.name in self.values:
                _use(OPTIMIZER_IMPLEMENTATION.value(self.values), optimizer, group)
        clip = CLIP_NORM.value(self.values)
        self._step = optimizer.step
        if clip or self.precision.scaler:
            self._step = ClippedStep(self.strategy, optimizer, self.precision, float(clip or 0.0))

    # ------------------------------------------------------------------ within an update

    def microbatches_of(self, batch: Any) -> Iterator[Any]:
        """This rank's parts of a global batch, on its device.

        Raises:
            UsageError: the batch cannot be divided.
        """
        if isinstance(batch, Mapping) and not isinstance(batch, dict):
            batch = dict(batch)  # such as the batches of transformers
        leaves, tree = tree_flatten(batch)
        rows = {str(i): one for i, one in enumerate(leaves) if isinstance(one, Tensor) and one.ndim}
        count, index = self.strategy.batch_degree, self.strategy.batch_rank
        divided = count * self.accumulation
        if divided == 1 and not rows:
            self._begin(0, 1, 1.0)
            yield batch
            return
        if divided > 1:
            _check_rows(leaves, rows, divided, self._begun == 0)
        share = BatchShare.of(
            self._source, rows, count=count, index=index, accumulation=self.accumulation
        )
        for number, part in enumerate(share.parts):
            weight = num_rows(part) / share.weight if share.real else 0.0
            self._begin(number, len(share.parts), weight)
            moved = part.to(self.device)
            yield tree_unflatten([moved.get(str(i), one) for i, one in enumerate(leaves)], tree)

    def _begin(self, number: int, count: int, weight: float) -> None:
        """A microbatch begins."""
        self._part = (number, count)
        self._weight = weight
        self._over = False
        self.microbatches += 1
        if number == 0:
            self._begun += 1
            self.waiting = False  # if the loop has left an update out, its gradients are cleared

    def _go_on(self) -> None:
        """Begin the next microbatch of a loop that makes its batches itself."""
        if self._loads or not (self._over or not self.microbatches):
            return
        number = (self._part[0] + 1) % self.accumulation if self.microbatches else 0
        self._begin(number, self.accumulation, self._weight)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the model; outputs in half precision become fp32."""
        if torch.is_grad_enabled():
            self._go_on()
        with self.strategy.synchronised(self.last), self.precision.autocast():
            output = self.strategy.model(*inputs, **named)
        return tree_map_only(Tensor, _widened, output) if self.precision.name in HALF else output

    def backward(self, loss: Tensor) -> None:
        """See `Context.backward`."""
        self._go_on()
        factor = self._weight * self.strategy.mean_over()
        if self.precision.scaler or factor != 1.0:
            loss = loss * (factor * self.precision.scale)
        with self.strategy.synchronised(self.last):
            loss.backward()  # type: ignore[no-untyped-call]
        self.waiting = self._over = True

    def step(self) -> None:
        """Update the weights if the last microbatch of an update is done."""
        if not self.last:
            return
        self.strategy.finish_gradients()
        self._step()
        self.updates += 1
        self.waiting = False
        if COMPILE.value(self.values) in RECORDS_GRAPHS:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------------ reports

    def step_of(self, step: int) -> int:
        """The number of the update, if a step counts microbatches from 0 or from 1.

        So steps of trials with different accumulation compare.
        """
        counted = step - self.microbatches
        return self._begun + counted if self.accumulation > 1 and counted in (-1, 0) else step

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """See `Context.report`: the mean over the microbatches of an update, and over ranks."""
        if self._reports.update not in (None, self._begun):
            self._send()
        self._reports.add(self._begun, self.step_of(int(step)), self._weight, numbers_of(metrics))
        return self._send() if self.last else self.context.stop is None

    def _send(self) -> bool:
        step, sums = self._reports.take()
        if self.context.world_size > 1:
            everywhere: list[Any] = [None] * self.context.world_size
            dist.all_gather_object(everywhere, sums, group=side_group())
            names = dict.fromkeys(name for one in everywhere for name in one)
            sums = {
                name: tuple(map(sum, zip(*(one[name] for one in everywhere if name in one))))
                for name in names
            }
        return self.context.send_report(step, {k: total / w for k, (total, w) in sums.items()})

    def agreed(self, stop: Any) -> Any:
        """Rank 0's request to stop, on every rank."""
        return value_of_rank_0(stop)

    def close(self, *, failed: bool) -> None:
        """The loop has ended: send what waits, and put the process's switches back."""
        if not failed and self._reports.update is not None:
            self._send()
        self._stack.close()
        self.strategy.close(failed)


class _Reports:
    """The reports of an update that were not sent yet: by name the weighted sum and the weight."""

    def __init__(self) -> None:
        self.update: int | None = None
        self._step = 0
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, update: int, step: int, weight: float, numbers: Mapping[str, float]) -> None:
        weight = weight or 1e-300  # an empty share counts only if there is no other
        self.update, self._step = update, step
        for name, number in numbers.items():
            total, weights = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (total + weight * number, weights + weight)

    def take(self) -> tuple[int, dict[str, tuple[float, float]]]:
        found = (self._step, self._sums)
        self.update, self._sums = None, {}
        return found


class PreparedModel(nn.Module):
    """The user's model in the number format and under the strategy of the trial.

    `module` is the model itself, and its attributes and methods are reached here too. Every rank
    calls `state_dict` and `load_state_dict`. The state has whole tensors by the names of the
    model, on the CPU of rank 0; it is empty on other ranks.
    """

    def __init__(self, loop: PreparedLoop) -> None:
        super().__init__()
        self.module = loop.strategy.plain
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the model returns."""
        return self._loop.forward(*inputs, **named)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """See the class; a parameter of several names is there under each."""
        state: dict[str, Any] = dict(self._loop.strategy.state())
        names: dict[int, str] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            first = names.setdefault(id(parameter), name)
            if first in state:
                state[name] = state[first]
        return state

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Overwrite the weights by those of rank 0; UsageError if a tensor is missing."""
        self._loop.strategy.load(state)


class PreparedOptimizer(Optimizer):
    """The user's optimizer; `step` and `zero_grad` act once an update, not at each microbatch.

    Every rank calls `state_dict` and `load_state_dict`. The state names parameters as the model
    does, so it fits any strategy.

    Attributes:
        updates: how many there were, also in earlier attempts if the state is restored.
    """

    def __init__(self, loop: PreparedLoop, optimizer: Optimizer) -> None:
        shared = {name: value for name, value in vars(optimizer).items() if name != "step"}
        self.__dict__.update(shared)  # groups and state are the optimizer's own
        self._loop = loop
        self._optimizer = optimizer

    @property
    def updates(self) -> int:
        """See the class."""
        return self._loop.updates

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the weights, unless microbatches of the update are still to come."""
        if closure is not None:
            raise UsageError("the step of a prepared optimizer takes no closure")
        self._loop.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, unless they wait for the update."""
        if not self._loop.waiting:
            self._optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """See the class."""
        loop, scaler = self._loop, self._loop.precision.scaler
        settings = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {
            "state": loop.strategy.optimizer_state(self._optimizer),
            "settings": settings,
            "scaler": scaler.state() if scaler else None,
            "updates": loop.updates,
            "microbatches": loop.microbatches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # type: ignore[override]
        """The inverse of `state_dict`; the kernels of the optimizer stay as they are."""
        loop, scaler = self._loop, self._loop.precision.scaler
        for group, settings in zip(self.param_groups, state["settings"], strict=True):
            group.update({k: v for k, v in settings.items() if k not in ("fused", "foreach")})
        loop.strategy.load_optimizer_state(self._optimizer, state["state"])
        if scaler and state["scaler"]:
            scaler.load(state["scaler"])
        loop.updates = loop._begun = state["updates"]
        loop.microbatches = state["microbatches"]


class PreparedScheduler:
    """The user's scheduler; `step` acts once an update, and at the end of an epoch."""

    def __init__(self, loop: PreparedLoop, scheduler: LRScheduler) -> None:
        self._loop = loop
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def step(self, *arguments: Any) -> None:
        """The next learning rate, unless the update is still to come."""
        if not self._loop.waiting:
            self._scheduler.step(*arguments)


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from random states of its own, the same on every rank: its batches depend
    neither on the strategy, nor on what the model draws.
    """

    def __init__(self, loop: PreparedLoop, loader: Any, state: Any) -> None:
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            raise UsageError("trial.prepare shares batches out: leave DistributedSampler out")
        self._loop = loop
        self._loader = loader
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) * self._loop.accumulation

    def __iter__(self) -> Iterator[Any]:
        with self._drawing():
            batches = iter(self._loader)
        while True:
            with self._drawing():
                batch = next(batches, _END)
            if batch is _END:
                return
            if self._loop._begun == 0 and self._loop.strategy.batch_degree > 1:
                _check_same(batch)
            yield from self._loop.microbatches_of(batch)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        before = _random_state()
        _set_random_state(self._state)
        try:
            yield
        finally:
            self._state = _random_state()
            _set_random_state(before)


_END: Final = object()


def _meet(context: Context, device: torch.device) -> None:
    """Make the process group of the ranks, unless the user's function has made it."""
    if context.world_size == 1 or dist.is_initialized():
        return
    host = os.environ.get("MASTER_ADDR")
    address = f"tcp://{host}:{os.environ['MASTER_PORT']}" if host else context.rendezvous
    traces = str(context.folder / LOGS / "nccl-calls-of-rank-")
    connect(context.rank, context.world_size, address, device, traces=traces)


def _use(name: str, optimizer: Optimizer, group: dict[str, Any]) -> None:
    flags = implementation(name, isinstance(optimizer, torch.optim.SGD), group["params"])
    lacking = [flag for flag, wanted in flags.items() if wanted and flag not in group]
    if lacking:
        raise UsageError(
            f"optimizer_implementation {name} needs an optimizer that has it, "
            f"{type(optimizer).__name__} has not"
        )
    group.update({flag: wanted for flag, wanted in flags.items() if flag in group})


def _check_rows(
    leaves: Sequence[Any], rows: Mapping[str, Tensor], divided: int, first: bool
) -> None:
    """Raise UsageError if a batch cannot be divided into so many parts."""
    others = [one for one in leaves if not isinstance(one, Tensor | int | float | bool | None)]
    if others or not rows:
        got = type(others[0]).__name__ if others else "none"
        raise UsageError(f"a batch to divide into {divided} parts is made of tensors, got {got}")
    sizes = sorted({len(one) for one in rows.values()})
    if len(sizes) > 1:
        raise UsageError(
            f"a batch to divide into {divided} parts has tensors of as many rows, got "
            f"{' and '.join(map(str, sizes))} rows"
        )
    if first and sizes[0] < divided:
        raise UsageError(f"a batch to divide into {divided} parts has as many rows, got {sizes[0]}")


def _check_same(batch: Any) -> None:
    """Raise UsageError if rank 0 has drawn another first batch."""
    leaves = [one for one in tree_flatten(batch)[0] if isinstance(one, Tensor)]
    mine = [(tuple(one.shape), float(one.double().sum())) for one in leaves]
    if mine != value_of_rank_0(mine):
        raise UsageError(
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank"
        )


def _random_state() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_random_state(state: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
