"""The trainer's pieces around a training loop of the user's own, and where it is in an update.

The loop computes the same under every setting. The loader's batches are global: each rank computes
its rows of a batch, in as many parts as `accumulation` says, and each part counts by its rows.
"""

import copy
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from search_spaces.errors import UsageError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import (
    ACCUMULATION,
    COMPACT_MEMORY,
    COMPILE,
    MATMUL_PRECISION,
    PRECISION,
    RECORDS_GRAPHS,
    THREADS,
)
from workers.context import Context
from workers.data.batch import BatchShare, num_rows
from workers.device.precision import HALF, Precision
from workers.functions.numbers import numbers_of
from workers.functions.saved_state import savable
from workers.parallel import STRATEGIES
from workers.parallel.base import ModuleStrategy
from workers.parallel.mesh import Mesh
from workers.parallel.transfers import from_rank_0
from workers.ranks.process_group import connect, disconnect, side_group, value_of_rank_0
from workers.training.setup import arrange, switches
from workers.workload import ParallelPlan

from .knobs import CLIP_NORM
from .weights import weight_of

_SWITCHES: Final = (PRECISION, MATMUL_PRECISION, COMPACT_MEMORY, THREADS)


_SEVERAL: Final = (
    "the losses of a microbatch count by different numbers of items: add them up, and say "
    "trial.backward(loss, weight=number) once"
)


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
        loads: whether the loader is prepared; else the loop makes its microbatches itself.
        waiting: whether gradients wait for the optimizer's step.
        trained: whether there was a backward pass.
        ended_untrained: whether the loader has ended before the first backward pass.
        called: whether the model was called with a microbatch of the loader.
    """

    def __init__(self, context: Context, values: Mapping[str, Any], plan: ParallelPlan) -> None:
        self.context = context
        self.values = values
        self.device = torch.device(context.device)
        self.precision = Precision(PRECISION.value(values), self.device)
        self.accumulation = int(ACCUMULATION.value(values))
        self._stack = ExitStack()
        self._enter_switches()
        self._met = _meet(context, self.device)
        kind: Any = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, values))
        self._source: Any = SimpleNamespace(  # what a strategy asks of a workload
            plan=lambda model: plan, weight=lambda batch: float(num_rows(batch))
        )
        self.strategy: ModuleStrategy = kind(mesh, self._source, self.device, values)
        self.updates = 0
        self.microbatches = 0
        self.waiting = False
        self.loads = self.called = False
        self.trained = self.ended_untrained = False
        self._part = (0, self.accumulation)  # of the present update: from 0, and of how many
        self._fetched: tuple[tuple[int, int], float] | None = None  # and has not begun
        self._ahead = [0, 0]  # microbatches and updates that were fetched and have not begun
        self._over = False  # the present microbatch has had its backward pass
        self._weight = 1.0 / self.accumulation / self.strategy.batch_degree
        self._begun = 0  # updates
        self.inside = False  # a method of the model
        self._steps = False
        self.attempted = 0  # updates of this attempt, skipped ones too
        self.skipped = False  # the last update, because fp16 has overflowed
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.loader: Any = None
        half = self.precision.name == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type) if half else None
        self._unit: float | None = None  # the weight of the first microbatch
        self._weighted: float | Tensor = 0.0  # the sum of the weights of this update, if any
        self._reported: float | Tensor | None = None  # the weight of this microbatch, if any
        self._records = COMPILE.value(values) in RECORDS_GRAPHS
        self._reports: list[tuple[float, dict[str, float]]] = []  # of an update, with weights
        self._report_at = (0, 0)  # the update, and its step

    @property
    def _divided(self) -> bool:
        """Whether a batch is computed in parts, by this rank or by several."""
        return self.accumulation * self.strategy.batch_degree > 1

    @property
    def last(self) -> bool:
        """See the class."""
        return self._part[0] == self._part[1] - 1

    def _enter_switches(self) -> None:
        """Set what the options that are set say; the rest of the process stays as it is."""
        context, values = self.context, self.values
        if any(option.name in values for option in _SWITCHES):
            present = {THREADS.name: torch.get_num_threads()}
            threads = context.assignment.threads
            self._stack.enter_context(switches({**present, **values}, threads, self.device))
        else:
            for name in KNOBS.names():
                self._stack.enter_context(KNOBS.get(name)().applied(values))

    def wrap(self, model: nn.Module) -> dict[int, str]:
        """Let the strategy take the model over, with the weights of rank 0.

        Returns:
            The names of the parameters that the model had, by their identities.
        """
        names = {id(p): name for name, p in model.named_parameters()}
        # Else the strategy moves it from the CPU to the device, part by part.
        model.to(self.device if self.strategy.replicated else torch.device("cpu"))
        self.equal_on_all_ranks(model)
        arrange(model, self._source.plan(model), self.values)
        self.strategy.wrap_own(model)
        return names

    def take(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """Let the optimizer update this rank's parameters, as they are held here."""
        own = [p for group in optimizer.param_groups for p in group["params"]]
        several = self.context.world_size > 1
        if several and any(id(p) not in names for p in own):
            raise UsageError("with several ranks an optimizer has parameters of the model only")
        if several and optimizer.state:
            raise UsageError("prepare the optimizer before its first step, then restore its state")
        held = self.strategy.parameters()
        self.names = {id(parameter): name for name, parameter in held.items()}
        for group in optimizer.param_groups:
            group["params"] = [held.get(names.get(id(p), ""), p) for p in group["params"]]
        self.optimizer = optimizer

    # ------------------------------------------------------------------ within an update

    def microbatches_of(self, batch: Any) -> Iterator[Any]:
        """This rank's parts of a global batch, on its device.

        Raises:
            UsageError: the batch cannot be divided.
        """
        if isinstance(batch, Mapping) and not isinstance(batch, dict):
            batch = dict(batch)  # such as the batches of transformers
        count, index = self.strategy.batch_degree, self.strategy.batch_rank
        divided = count * self.accumulation
        if divided == 1:
            self._fetch(0, 1, 1.0)
            if self.device.type != "cpu":
                upload = partial(Tensor.to, device=self.device, non_blocking=True)
                batch = tree_map_only(Tensor, upload, batch)
            yield batch
            return
        leaves, tree, rows = divisible(batch, divided, least=1 if self._begun else divided)
        share = BatchShare.of(
            self._source, rows, count=count, index=index, accumulation=self.accumulation
        )
        for number, part in enumerate(share.parts):
            weight = num_rows(part) / share.weight if share.real else 0.0
            self._fetch(number, len(share.parts), weight)
            moved = part.to(self.device)
            yield tree_unflatten([moved.get(str(i), one) for i, one in enumerate(leaves)], tree)

    def _fetch(self, number: int, count: int, weight: float) -> None:
        """The loader gives a microbatch. It begins with the model's next call.

        So a loop may fetch a microbatch before the backward pass of the one before.
        """
        self._fetched = ((number, count), weight)
        self._ahead[0] += 1
        self._ahead[1] += number == 0
        if not self.called:
            self._begin()

    def _begin(self) -> None:
        """The microbatch that was fetched last begins."""
        if self._fetched is None:
            return
        (self._part, self._weight), self._fetched = self._fetched, None
        self._over = False
        self._reported = None
        self.microbatches += self._ahead[0]
        self._begun += self._ahead[1]
        if self._ahead[1]:
            self._weighted = 0.0
            self.waiting = False  # if the loop has left an update out, its gradients are cleared
        self._ahead = [0, 0]

    def _go_on(self) -> None:
        """Begin the next microbatch of a loop that makes its batches itself."""
        if self.loads or not (self._over or not self.microbatches):
            return
        number = (self._part[0] + 1) % self.accumulation if self.microbatches else 0
        self._fetch(number, self.accumulation, self._weight)

    def call(self, method: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        """Call a method of the model that computes; outputs in half precision become fp32."""
        if torch.is_grad_enabled():
            self.called = self.loads
            self._go_on()
            self._begin()
        self.inside = True
        try:
            with self.strategy.synchronised(self.last), self.precision.autocast():
                output = method(*inputs, **named)
        finally:
            self.inside = False
        return widened(output) if self.precision.name in HALF else output

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """See `Context.backward`."""
        if self.ended_untrained and self.accumulation > 1:
            raise UsageError(
                f"with accumulation {self.accumulation} a loop trains each microbatch before it "
                "takes the next but one: do not make a list of the prepared loader"
            )
        self._go_on()
        if weight is None and self._divided:
            weight = weight_of(loss)
        factor: float | Tensor = self._weight
        if self._over and (weight is None) != (self._reported is None):
            raise UsageError(_SEVERAL)
        if weight is not None and self._divided:
            factor = self._weighed(weight)
            if isinstance(weight, Tensor):  # a mean over nothing is not a number
                loss = torch.where(weight > 0, loss, torch.zeros_like(loss))
        factor = factor * self.strategy.mean_over()
        if self.scaler:
            loss = self.scaler.scale(loss)
        with self.strategy.synchronised(self.last):
            joined = self.strategy.joined(loss)
            scaled: Any = joined if isinstance(factor, float) and factor == 1.0 else joined * factor
            scaled.backward()
        self.waiting = self._over = self.trained = True

    def _weighed(self, weight: float | Tensor) -> float | Tensor:
        """The factor of a loss of this weight; the update divides by the sum of all factors."""
        if self._unit is None:
            self._unit = float(value_of_rank_0(float(weight))) or 1.0
        factor = weight / self._unit / self.accumulation / self.strategy.batch_degree
        if not self._over:
            self._weighted = self._weighted + factor
            self._reported = factor
        elif float(factor) != float(self._reported or 0.0):
            raise UsageError(_SEVERAL)
        return factor

    def step(self, update: Callable[[], Any]) -> Any:
        """Update the weights if the last microbatch of an update is done.

        Args:
            update: the step of the optimizer itself.
        """
        if self._steps:  # the scaler of the loss calls the optimizer
            return update()
        if not self.last:
            return None
        self._check_backward()
        self.strategy.finish_gradients()
        self._steps = True
        try:
            result = self._scaled_step(update) if self.trained else update()
        finally:
            self._steps = False
        self.attempted += 1
        self.updates += not self.skipped
        self.waiting = False
        if self._records:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return result

    def _scaled_step(self, update: Callable[[], Any]) -> Any:
        """Unscale, weigh and clip the gradients, and step unless fp16 has overflowed."""
        scaler, optimizer = self.scaler, self.optimizer
        if scaler:
            scaler.unscale_(optimizer)
        if isinstance(self._weighted, Tensor) or self._weighted:
            total = torch.as_tensor(self._weighted, device=self.device, dtype=torch.float32)
            if self.context.world_size > 1:
                dist.all_reduce(total)
            self._scale_gradients(self.strategy.mesh.tensor / total)
            self._weighted = 0.0
        if clip := float(CLIP_NORM.value(self.values) or 0.0):
            norm = self.strategy.grad_norm()
            self.strategy.scale_gradients((clip / (norm + 1e-6)).clamp(max=1.0))
        if not scaler:
            return update()
        before = scaler.get_scale()
        result = scaler.step(optimizer)
        scaler.update()
        self.skipped = scaler.get_scale() < before
        if self.skipped:
            known = self.context.details.get("skipped_updates", 0)
            self.context.details["skipped_updates"] = known + 1
        return result

    def _scale_gradients(self, factor: Tensor) -> None:
        self.strategy.scale_gradients(factor)
        inside = {id(parameter) for parameter in self.strategy.parameters().values()}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in inside:
                    parameter.grad.mul_(factor)

    def _check_backward(self) -> None:
        if not self.trained and any(
            p.grad is not None for p in self.strategy.parameters().values()
        ):
            raise UsageError(
                "the gradients are those of loss.backward(): after trial.prepare, call "
                "trial.backward(loss), which knows of precision, accumulation and ranks"
            )

    # ------------------------------------------------------------------ states

    def gathered(self, key: str, value: Any, parameter: Tensor) -> Any:
        """A value of an optimizer's state, whole, on the CPU of rank 0 if ranks hold parts."""
        if self.strategy.replicated or not isinstance(value, Tensor):
            return value
        whole = self.strategy.gather(value.detach(), self.names[id(parameter)])
        return whole.cpu() if self.context.rank == 0 else None

    def counts(self) -> dict[str, Any]:
        """What the state of an optimizer has besides: where the loop is, and the scale of fp16."""
        return {
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "updates": self.updates,
            "begun": self._begun,
            "microbatches": self.microbatches,
        }

    def load_counts(self, counts: Mapping[str, Any]) -> None:
        """The inverse of `counts`."""
        if self.scaler and counts["scaler"]:
            self.scaler.load_state_dict(counts["scaler"])
        self.updates, self._begun = counts["updates"], counts["begun"]
        self.microbatches = counts["microbatches"]

    def equal_on_all_ranks(self, model: nn.Module) -> None:
        """Overwrite the tensors of a whole model by those of rank 0."""
        if self.context.world_size > 1:
            with torch.no_grad():
                for held in (*model.parameters(), *model.buffers()):
                    held.copy_(from_rank_0(held.detach().cpu()))

    def to_save(self) -> dict[str, Any]:
        """What `trial.save` keeps of the loop itself: orders, random numbers, the schedule."""
        state: dict[str, Any] = {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "microbatches": self.microbatches,
        }
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        if self.loader is not None:
            state["loader"] = self.loader.order()
        if self.scheduler is not None and savable(schedule := self.scheduler.state_dict()):
            state["scheduler"] = schedule
        return state

    def go_on(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_save`; ranks other than 0 draw numbers of their own."""
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        if self.context.rank:
            torch.manual_seed(hash((self.context.seed, self.context.rank, state["microbatches"])))
        else:
            torch.set_rng_state(state["torch"])
            if "cuda" in state and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda"], self.device)
        if self.loader is not None and "loader" in state:
            self.loader.go_on(state["loader"])
        if self.scheduler is not None and "scheduler" in state:
            self.scheduler.load_state_dict(state["scheduler"])

    # ------------------------------------------------------------------ reports

    @property
    def may_clear(self) -> bool:
        """Whether no gradients wait for their update, or those of one that was left out."""
        return not self.waiting or (self._over and self._ahead[1] > 0)

    def step_of(self, step: int) -> int:
        """The number of the update, if a step counts microbatches from 0 or from 1.

        So steps of trials with different accumulation compare.
        """
        counted = step - self.microbatches
        return self._begun + counted if self.accumulation > 1 and counted in (-1, 0) else step

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """See `Context.report`: the mean over the microbatches of an update, and over ranks."""
        if self.accumulation == 1 and self.context.world_size == 1:
            return self._emit(step, metrics)
        if self._reports and self._report_at[0] != self._begun:
            self._send()
        weight = self._weight if self._reported is None else float(self._reported)
        # An empty share counts only if there is no other.
        self._reports.append((weight or 1e-300, numbers_of(metrics)))
        self._report_at = (self._begun, self.step_of(int(step)))
        return self._send() if self.last else self.context.stop is None

    def _send(self) -> bool:
        mine, self._reports = self._reports, []
        everywhere: list[Any] = [mine]
        if self.context.world_size > 1:
            everywhere *= self.context.world_size
            dist.all_gather_object(everywhere, mine, group=side_group())
        named: dict[str, list[tuple[float, float]]] = {}
        for weight, numbers in chain(*everywhere):
            for name, number in numbers.items():
                named.setdefault(name, []).append((weight, number))
        means = {n: sum(w * x for w, x in v) / sum(w for w, _ in v) for n, v in named.items()}
        return self._emit(self._report_at[1], means)

    def _emit(self, step: int, metrics: Mapping[str, Any]) -> bool:
        skipped = self.context.details.get("skipped_updates")
        more = {"skipped_updates": skipped} if skipped else {}
        return self.context.send_report(step, {**more, **metrics})

    def agreed(self, stop: Any) -> Any:
        """Rank 0's request to stop, on every rank."""
        return value_of_rank_0(stop)

    def barrier(self) -> None:
        """See `Context.barrier`."""
        if self.context.world_size > 1:
            dist.barrier(group=side_group())

    def close(self, *, failed: bool) -> None:
        """The loop has ended: send what waits, and put the process's switches back."""
        if not failed and self._reports:
            self._send()
        self._stack.close()
        self.strategy.close(failed)
        if self._met:
            disconnect(failed=failed)


def _meet(context: Context, device: torch.device) -> bool:
    """Make the process group of the ranks, unless the user's function has; whether it was made."""
    if context.world_size == 1 or dist.is_initialized():
        return False
    host = os.environ.get("MASTER_ADDR")
    address = f"tcp://{host}:{os.environ['MASTER_PORT']}" if host else context.rendezvous
    connect(context.rank, context.world_size, address, device)
    return True


def divisible(
    batch: Any, divided: int, least: int
) -> tuple[list[Any], TreeSpec, dict[str, Tensor]]:
    """The leaves of a batch, its structure, and the tensors that have rows, by their numbers.

    Raises:
        UsageError: it cannot be divided into so many parts, or has fewer than `least` rows.
    """
    leaves, tree = tree_flatten(batch)
    rows = {str(i): one for i, one in enumerate(leaves) if isinstance(one, Tensor) and one.ndim}
    others = [one for one in leaves if not isinstance(one, Tensor | int | float | bool | None)]
    words = f"a batch to divide into {divided} parts"
    if others or not rows:
        got = type(others[0]).__name__ if others else "none"
        raise UsageError(f"{words} is made of tensors, got {got}")
    sizes = sorted({len(one) for one in rows.values()})
    if len(sizes) > 1:
        got = " and ".join(map(str, sizes))
        raise UsageError(f"{words} has tensors of as many rows, got {got} rows")
    if sizes[0] < least:
        raise UsageError(f"{words} has as many rows, got {sizes[0]}")
    return leaves, tree, rows


def widened(value: Any, depth: int = 3) -> Any:
    """An output of a model with its tensors in fp32; also in mappings and objects of any class."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    leaves, tree = tree_flatten(value)
    if len(leaves) != 1 or leaves[0] is not value:
        return tree_unflatten([widened(leaf, depth) for leaf in leaves], tree)
    fields = getattr(type(value), "__dataclass_fields__", None) or getattr(value, "__dict__", {})
    items = dict(value) if isinstance(value, dict) else {}
    if not depth or isinstance(value, nn.Module | type) or not (items or fields):
        return value
    made = copy.copy(value)
    for name in fields:
        one = getattr(value, name, None)
        if (wide := widened(one, depth - 1)) is not one:
            object.__setattr__(made, name, wide)
    for key, one in items.items():
        if (wide := widened(one, depth - 1)) is not one:
            made[key] = wide
    return made
