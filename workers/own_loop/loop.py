"""A training loop of the user's own under a trial's settings, and where in an update it is.

The loop computes the same under every setting. The loader's batches are global: each rank computes
its rows of a batch, in as many parts as `accumulation` says, and each part counts by its items.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

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
from workers.device.precision import Precision
from workers.functions.numbers import numbers_of
from workers.functions.saved_state import savable
from workers.parallel import STRATEGIES
from workers.parallel.base import Strategy
from workers.parallel.mesh import Mesh
from workers.parallel.transfers import from_rank_0, local
from workers.ranks.process_group import connect, disconnect, side_group, value_of_rank_0
from workers.training.setup import arrange, switches
from workers.workload import ParallelPlan

from .knobs import CLIP_NORM

_SWITCHES: Final = (PRECISION, MATMUL_PRECISION, COMPACT_MEMORY, THREADS)
_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_SELECTED: Final = ("Index", "MaskedSelect")  # nodes of `losses[mask]`
_DEEP: Final = 32  # nodes
# Nodes that a term of a loss passes on its way to the sum of all terms.
_PASSED: Final = ("Add", "Sub", "Mul", "Div", "Neg", "ToCopy", "View", "Squeeze", "Unsqueeze")
_IN_ORDER: Final = (
    "a batch is computed in parts, each of which has its backward pass before the loader gives the "
    "next: do not make a list of the prepared loader, and fetch no batch ahead"
)
_SEVERAL: Final = (
    "the losses of a microbatch count by numbers of items: add them up, and say "
    "trial.backward(loss, weight=number) once"
)
_NOT_OURS: Final = (
    "the gradients are those of loss.backward(): after trial.prepare, call "
    "trial.backward(loss), which knows of precision, accumulation and ranks"
)


class PreparedLoop:
    """One rank's part in a training loop of the user's own.

    Args:
        context: of the trial.
        values: of the options that are set.
        plan: of the model.

    Attributes:
        divided: whether a batch is computed in parts, by this rank or by several.
        updates: of the optimizer so far; attempted: in this attempt, with those that fp16 skipped.
        begun, microbatches: updates and their parts that the loader has given so far.
        part, parts: the present microbatch of its update, and of how many.
        done: microbatches of this update that had their backward pass.
        rows: of the present global batch.
        weight: of the present microbatch, as a share of its update.
        skipped: whether fp16 has skipped the last update.
        inside: whether a method of the model computes.
    """

    def __init__(self, context: Context, values: Mapping[str, Any], plan: ParallelPlan) -> None:
        self.context = context
        self.values = values
        self.device = torch.device(context.device)
        self.precision = Precision(PRECISION.value(values), self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision.name == "fp16")
        self.accumulation = int(ACCUMULATION.value(values))
        self._stack = ExitStack()
        if any(option.name in values for option in _SWITCHES):
            present = {THREADS.name: torch.get_num_threads(), **values}
            self._stack.enter_context(switches(present, 1, self.device))
        else:  # the rest of the process stays as it is
            for name in KNOBS.names():
                self._stack.enter_context(KNOBS.get(name)().applied(values))
        self._met = _meet(context, self.device)
        kind: Any = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, values))
        self._plan = plan
        source = SimpleNamespace(plan=lambda model: plan)  # what a strategy asks of a workload
        self.strategy: Strategy = kind(mesh, source, self.device, values)
        self.divided = self.accumulation * self.strategy.batch_degree > 1
        self.updates = self.attempted = self.begun = self.microbatches = 0
        self.part = self.done = 0
        self.parts = self.rows = 1
        self.weight: float | Tensor = 1.0 / self.strategy.batch_degree
        self.skipped = self.inside = False
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.loader: Any = None
        self._trained = self._stepping = False
        self._total: Tensor | None = None  # the sum of the weights of this update, if they count
        self._reports: list[tuple[float, dict[str, float]]] = []  # of an update, with weights
        self._report_at = (0, 0)  # the update, and its step

    def __reduce__(self) -> Any:
        """A copy of the prepared model is a plain one."""
        return SimpleNamespace, (), {"inside": True, "between": False}

    def wrap(self, model: nn.Module) -> dict[int, str]:
        """Let the strategy take the model over, with the weights of rank 0.

        Returns:
            The names of the parameters that the model had, by their identities.
        """
        names = {id(p): name for name, p in model.named_parameters()}
        # Else the strategy moves it from the CPU to the device, part by part.
        model.to(self.device if self.strategy.replicated else torch.device("cpu"))
        if self.context.world_size > 1:
            for held in (*model.parameters(), *model.buffers()):
                held.data.copy_(from_rank_0(held.detach().cpu()))
        arrange(model, self._plan, self.values)
        self.strategy.wrap_own(model)
        return names

    def take(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """Let the optimizer update this rank's parameters, as they are held here."""
        own = [p for group in optimizer.param_groups for p in group["params"]]
        if self.context.world_size > 1 and any(id(p) not in names for p in own):
            raise UsageError("with several ranks an optimizer has parameters of the model only")
        if self.context.world_size > 1 and optimizer.state:
            raise UsageError("prepare the optimizer before its first step, then restore its state")
        held = self.strategy.parameters()
        for group in optimizer.param_groups:
            group["params"] = [held.get(names.get(id(p), ""), p) for p in group["params"]]
        self.optimizer = optimizer

    # ------------------------------------------------------------------ within an update

    @property
    def last(self) -> bool:
        """Whether the present microbatch is the last of its update."""
        return self.part >= self.parts - 1

    @property
    def between(self) -> bool:
        """Whether gradients wait for further parts of their update."""
        return 0 < self.done < self.parts

    def begin(self, part: int, parts: int, weight: float, rows: int) -> None:
        """The loader gives a microbatch, which is `weight` of its batch of so many rows."""
        self.part, self.parts, self.weight, self.rows = part, parts, weight, rows
        self.microbatches += 1
        if part == 0:  # if the loop has left an update out, its gradients are cleared
            self.begun += 1
            self.done = 0
            self._total = None

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """See `Context.backward`."""
        again = self.done == self.part + 1  # another loss of this microbatch
        if not again and self.done != self.part:
            raise UsageError(_IN_ORDER)
        counted = weight_of(loss) if self.divided and weight is None else weight
        if self.divided and counted is not None:
            if again:
                raise UsageError(_SEVERAL)
            items = torch.as_tensor(counted, dtype=torch.float32, device=loss.device)
            loss = torch.where(items > 0, loss, torch.zeros_like(loss))  # a mean over nothing
            self.weight = items / self.rows * (self.weight > 0)
            self._total = self.weight + (0.0 if self._total is None else self._total)
        elif again and self._total is not None:
            raise UsageError(_SEVERAL)
        self.done = self.part + 1
        self._trained = True
        with self.strategy.synchronised(self.last):
            joined = self.strategy.joined(self.scaler.scale(loss))
            scaled: Any = joined * (self.weight * self.strategy.mean_over())
            scaled.backward()

    def step(self, update: Callable[[], Any]) -> Any:
        """Update the weights by the step of the optimizer, after the last part of an update."""
        if self._stepping:  # the scaler of the loss calls the optimizer
            return update()
        if not self.last:
            return None
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        gradients = [local(p.grad) for p in parameters if p.grad is not None]
        if gradients and not self._trained:
            raise UsageError(_NOT_OURS)
        self._stepping = True
        try:
            result = self._scaled_step(update, gradients) if gradients else update()
        finally:
            self._stepping = False
        self.done = 0
        self.attempted += 1
        self.updates += not self.skipped
        if COMPILE.value(self.values) in RECORDS_GRAPHS:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return result

    def _scaled_step(self, update: Callable[[], Any], gradients: list[Tensor]) -> Any:
        """Unscale, weigh and clip the gradients, and step unless fp16 has overflowed."""
        strategy = self.strategy
        strategy.finish_gradients()
        self.scaler.unscale_(self.optimizer)
        if self._total is not None:
            if self.context.world_size > 1:
                dist.all_reduce(self._total)
            torch._foreach_mul_(gradients, strategy.mesh.tensor / self._total)
            self._total = None
        if clip := float(CLIP_NORM.value(self.values) or 0.0):
            strategy.scale_gradients((clip / (strategy.grad_norm() + 1e-6)).clamp(max=1.0))
        before = self.scaler.get_scale()
        result = self.scaler.step(self.optimizer) if self.scaler.is_enabled() else update()
        self.scaler.update()
        self.skipped = self.scaler.get_scale() < before
        if self.skipped:
            details = self.context.details
            details["skipped_updates"] = details.get("skipped_updates", 0) + 1
        return result

    # ------------------------------------------------------------------ states

    def to_save(self) -> dict[str, Any]:
        """What `trial.save` keeps of the loop itself: orders, random numbers, the schedule."""
        schedule = self.scheduler.state_dict() if self.scheduler else None
        on_gpu = self.device.type == "cuda"
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if on_gpu else None,
            "loader": self.loader.order() if self.loader is not None else None,
            "scheduler": schedule if savable(schedule) else None,
            "scaler": self.scaler.state_dict(),
            "counts": [self.updates, self.begun, self.microbatches],
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_save`; ranks other than 0 draw numbers of their own."""
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        self.updates, self.begun, self.microbatches = state["counts"]
        if self.context.rank:
            torch.manual_seed(hash((self.context.seed, self.context.rank, self.microbatches)))
        else:
            torch.set_rng_state(state["torch"])
            if state["cuda"] is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda"], self.device)
        if self.optimizer is not None:
            self.optimizer.updates = self.updates
        if self.loader is not None and state["loader"]:
            self.loader.go_on(state["loader"])
        if self.scheduler is not None and state["scheduler"]:
            self.scheduler.load_state_dict(state["scheduler"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    # ------------------------------------------------------------------ reports

    def step_of(self, step: int) -> int:
        """The number of the update, if a step counts microbatches from 0 or from 1.

        So steps of trials with different accumulation compare.
        """
        counted = step - self.microbatches
        return self.begun + counted if self.accumulation > 1 and counted in (-1, 0) else step

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """See `Context.report`: the mean over the microbatches of an update, and over ranks."""
        if not self.divided:
            return self.context.send_report(step, metrics)
        if self._reports and self._report_at[0] != self.begun:
            self._send()
        # An empty share counts only if there is no other.
        self._reports.append((float(self.weight) or 1e-300, numbers_of(metrics)))
        self._report_at = (self.begun, self.step_of(int(step)))
        return self._send() if self.last else self.context.stop is None

    def _send(self) -> bool:
        mine, self._reports = self._reports, []
        everywhere = [mine] * self.context.world_size
        if self.context.world_size > 1:
            dist.all_gather_object(everywhere, mine, group=side_group())
        named: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for weight, numbers in chain(*everywhere):
            for name, number in numbers.items():
                named[name].append((weight, number))
        means = {n: sum(w * x for w, x in v) / sum(w for w, _ in v) for n, v in named.items()}
        return self.context.send_report(self._report_at[1], means)

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


def weight_of(loss: Tensor) -> float | Tensor | None:
    """By what a loss counts beside those of other parts; None if it is by the rows of the part.

    A mean over tokens that are not padding counts by its tokens. torch keeps their number for the
    backward pass, so it is read from the graph that autograd has recorded.

    Raises:
        UsageError: the loss is a sum, or has a term that is a mean over fewer items than it looks.
    """
    node: Any = loss.grad_fn
    while node is not None and (node.name().startswith("ToCopy") or _by_number(node)):
        node = node.next_functions[0][0]
    if node is None:
        return None
    name = node.name()
    if name.startswith("Sum") or getattr(node, "_saved_reduction", _MEAN) == _SUM:
        raise UsageError(
            "the loss is a sum, and a batch in parts needs a mean: divide it by the number of its "
            "items, or say trial.backward(loss / number, weight=number)"
        )
    if name.startswith("NllLoss"):
        return node._saved_total_weight  # type: ignore[no-any-return]
    if name.startswith("Mean") and node.next_functions[0][0].name().startswith(_SELECTED):
        return float(node._saved_self_sym_numel)
    if name == "DivBackward0":
        count = node._saved_other
        return count.detach() if count.ndim == 0 and not count.requires_grad else None
    for term in _terms(node):
        if not term.name().startswith("NllLoss") or term._saved_reduction != _MEAN:
            continue
        if float(term._saved_total_weight) != term._saved_target.numel():
            raise UsageError(
                "a term of the loss is a mean over the tokens that are not padding, so its parts "
                "count by their tokens: say trial.backward(loss, weight=tokens)"
            )
    return None


def _by_number(node: Any) -> bool:
    """Whether the node divides by a plain number of Python, which torch marks as such."""
    other = getattr(node, "_saved_other", None)
    if node.name() != "DivBackward0" or not isinstance(other, Tensor) or other.ndim:
        return False
    narrow = torch.float16 if other.is_floating_point() else torch.int8
    return torch.result_type(other, torch.ones((), dtype=narrow)) != other.dtype


def _terms(node: Any) -> Iterator[Any]:
    waiting = [node]
    for _ in range(_DEEP):
        if not waiting:
            return
        one = waiting.pop()
        yield one
        if one.name().startswith(_PASSED):
            waiting += [before for before, _ in one.next_functions if before is not None]
