"""A training loop of the user's own under a trial's settings, and where in an update it is.

The loop computes the same under every setting. The loader's batches are global: each rank computes
its rows of a batch, in as many parts as `accumulation` says, and each part counts by its items.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

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
from workers.parallel.transfers import local
from workers.ranks import connect, disconnect, side_group, value_of_rank_0
from workers.training.setup import switches
from workers.workload import ParallelPlan

from .knobs import CLIP_NORM

_SWITCHES: Final = (PRECISION, MATMUL_PRECISION, COMPACT_MEMORY, THREADS)
_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_SELECTED: Final = ("Index", "MaskedSelect")  # nodes of `losses[mask]`
# Nodes that a term of a loss passes on its way to the sum of all terms.
_PASSED: Final = ("Add", "Sub", "Mul", "Div", "Neg", "ToCopy", "View", "Squeeze", "Unsqueeze")
_IN_ORDER: Final = (
    "a batch is computed in parts, each of which has one backward pass before the loader gives the "
    "next: do not make a list of the prepared loader, fetch no batch ahead, and add the losses of "
    "a part up"
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
        attempted: updates in this attempt, with those that fp16 skipped.
        scheduled: how many were attempted before the last step of the scheduler.
        begun, microbatches: updates and their parts that the loader has given so far.
        part: the present microbatch of its update; last: whether no other follows.
        done: microbatches of this update that had their backward pass.
        rows: of the present global batch; share: the part of them in the present microbatch.
        weight: of the present microbatch: its share, or its tokens by `rows`.
        between: whether gradients wait for further parts of their update.
        skipped: whether fp16 has skipped the last update.
        inside: whether a method of the model computes.
    """

    attempted = scheduled = begun = microbatches = part = done = 0
    rows = 1
    last = True
    total: float | Tensor = 0.0  # the sum of the weights of this update
    skipped = inside = between = trained = False
    agreed = staticmethod(value_of_rank_0)  # a request to stop
    scheduler: Any = None
    loader: Any = None

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
        if context.world_size > 1 and not dist.is_initialized():
            host = os.environ.get("MASTER_ADDR")
            address = f"tcp://{host}:{os.environ['MASTER_PORT']}" if host else context.rendezvous
            connect(context.rank, context.world_size, address, self.device)
        kind: Any = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, values))
        source = SimpleNamespace(plan=lambda model: plan)  # what a strategy asks of a workload
        self.strategy: Strategy = kind(mesh, source, self.device, values)
        self.divided = self.accumulation * self.strategy.batch_degree > 1
        self.share = 1.0 / self.strategy.batch_degree
        self.weight: float | Tensor = self.share
        self.optimizer: Any = SimpleNamespace(updates=0)  # until there is one
        self._reports: list[tuple[str, float, float]] = []  # of an update: name, weight and number
        self._report_at = (0, 0)  # the update, and its step

    def __reduce__(self) -> Any:
        """A copy of the prepared model is a plain one."""
        return SimpleNamespace, (), {"inside": True, "between": False}

    def begin(self, part: int, parts: int, rows: int, own: int) -> None:
        """The loader gives a microbatch, which has `own` of the rows of its batch."""
        self.part, self.rows = part, rows
        self.last = part == parts - 1
        self.share = self.weight = own / rows
        self.microbatches += 1
        if part == 0:  # if the loop has left an update out, it is forgotten
            self.begun += 1
            self.done, self.total, self.between = 0, 0.0, False

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """See `Context.backward`."""
        if self.divided:
            if self.done != self.part:
                raise UsageError(_IN_ORDER)
            items = weight_of(loss) if weight is None else weight
            if items is not None:
                self.weight = items / self.rows if self.share else 0.0
            counted = torch.as_tensor(self.weight, dtype=torch.float32, device=loss.device)
            self.total = self.total + counted
            # The mean over no items is no number.
            loss = torch.where(counted > 0, loss, torch.zeros_like(loss)) * counted
        self.done = self.part + 1
        self.between = not self.last
        self.trained = True
        with self.strategy.synchronised(self.last):
            scaled: Any = self.strategy.joined(self.scaler.scale(loss)) * self.strategy.mean_over()
            scaled.backward()

    def step(self, update: Callable[[], Any]) -> Any:
        """Update the weights by the step of the optimizer, after the last part of an update."""
        if not self.last:
            return None
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        trained = [parameter for parameter in parameters if parameter.grad is not None]
        if trained and not self.trained:
            raise UsageError(_NOT_OURS)
        result = self._scaled(update, trained) if trained else update()
        self.done = 0
        self.attempted += 1
        self.optimizer.updates += not self.skipped
        if COMPILE.value(self.values) in RECORDS_GRAPHS:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return result

    def _scaled(self, update: Callable[[], Any], parameters: list[Any]) -> Any:
        """Unscale, weigh and clip the gradients, and step unless fp16 has overflowed."""
        self.strategy.finish_gradients()
        # What the scaler needs of an optimizer; it must not call the step that calls it.
        plain: Any = SimpleNamespace(param_groups=self.optimizer.param_groups, step=update)
        self.scaler.unscale_(plain)
        if isinstance(self.total, Tensor):
            if self.context.world_size > 1:
                dist.all_reduce(self.total)
            gradients = [local(parameter.grad) for parameter in parameters]
            torch._foreach_mul_(gradients, self.strategy.mesh.tensor / self.total)
            self.total = 0.0
        if clip := float(CLIP_NORM.value(self.values) or 0.0):
            factor = (clip / (self.strategy.grad_norm() + 1e-6)).clamp(max=1.0)
            self.strategy.scale_gradients(factor)
        before = self.scaler.get_scale()
        result = self.scaler.step(plain)
        self.scaler.update()
        self.skipped = self.scaler.get_scale() < before
        if self.skipped:
            skipped = self.context.details.get("skipped_updates", 0)
            self.context.details["skipped_updates"] = skipped + 1
        return result

    def gathered(self, part: Tensor, like: Tensor, name: str) -> Tensor:
        """The whole of this rank's part of a parameter, or of a tensor of its shape, on the CPU."""
        return self.strategy.gather(part.detach(), name).cpu()

    def scattered(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """The inverse of `gathered`; a tensor of another shape stays, and torch refuses it."""
        return self.strategy.scatter(whole, like, name) if whole.shape == like.shape else whole

    def to_save(self) -> dict[str, Any]:
        """What `trial.save` keeps of the loop itself: orders, random numbers, the schedule."""
        schedule = self.scheduler.state_dict() if self.scheduler else None
        on_gpu = self.device.type == "cuda"
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if on_gpu else None,
            "loader": self.loader.order if self.loader is not None else None,
            "scheduler": schedule if savable(schedule) else None,
            "scaler": self.scaler.state_dict(),
            "counts": [self.optimizer.updates, self.begun, self.microbatches],
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_save`; ranks with other rows draw numbers of their own."""
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        self.optimizer.updates, self.begun, self.microbatches = state["counts"]
        if row := self.context.rank // self.strategy.mesh.tensor:
            torch.manual_seed(hash((self.context.seed, row, self.microbatches)))
        else:
            torch.set_rng_state(state["torch"])
            if state["cuda"] is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda"], self.device)
        if self.loader is not None and state["loader"]:
            self.loader.go_on(state["loader"])
        if self.scheduler is not None and state["scheduler"]:
            self.scheduler.load_state_dict(state["scheduler"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    def step_of(self, step: int) -> int:
        """The number of the update, if a step counts microbatches from 0 or from 1.

        So steps of trials with different accumulation compare.
        """
        counted = step - self.microbatches
        return self.begun + counted if self.accumulation > 1 and counted in (-1, 0) else step

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """See `Context.report`: the mean over the microbatches of an update, and over ranks."""
        if not self.divided:
            return self.context.emit(step, metrics)
        if self._reports and self._report_at[0] != self.begun:
            self._send()
        weight = float(self.weight) or 1e-300  # an empty share counts only if there is no other
        self._reports += [(name, weight, one) for name, one in numbers_of(metrics).items()]
        self._report_at = (self.begun, self.step_of(int(step)))
        return self._send() if self.last else self.context.stop is None

    def _send(self) -> bool:
        mine, self._reports = self._reports, []
        everywhere = [mine] * self.context.world_size
        if self.context.world_size > 1:
            dist.all_gather_object(everywhere, mine, group=side_group())
        sums: dict[str, float] = defaultdict(float)
        weights: dict[str, float] = defaultdict(float)
        for name, weight, number in chain(*everywhere):
            sums[name] += weight * number
            weights[name] += weight
        means = {name: total / weights[name] for name, total in sums.items()}
        return self.context.emit(self._report_at[1], means)

    def barrier(self) -> None:
        """See `Context.barrier`."""
        if self.context.world_size > 1:
            dist.barrier(group=side_group())

    def close(self, *, failed: bool) -> None:
        """The loop has ended: send what waits, and put the process's switches back."""
        if not failed and self._reports:
            self._send()
        self._stack.close()
        if self.context.world_size > 1:
            disconnect(failed=failed)


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
    for term in islice(_terms(node), 32):  # a sum of thousands ends somewhere
        mean = term.name().startswith("NllLoss") and term._saved_reduction == _MEAN
        if mean and float(term._saved_total_weight) != term._saved_target.numel():
            raise UsageError(
                "a term of the loss is a mean over the tokens that are not padding, so its parts "
                "count by their tokens: say trial.backward(loss, weight=tokens)"
            )
    return None


def _by_number(node: Any) -> bool:
    """Whether the node divides by a plain number of Python, which torch marks as such."""
    other = node._saved_other if node.name() == "DivBackward0" else None
    if not isinstance(other, Tensor) or other.ndim:
        return False
    narrow = torch.float16 if other.is_floating_point() else torch.int8
    return torch.result_type(other, torch.ones((), dtype=narrow)) != other.dtype


def _terms(node: Any) -> Iterator[Any]:
    """The node and the terms of the sum that it is."""
    yield node
    if node.name().startswith(_PASSED):
        for before, _ in node.next_functions:
            if before is not None:
                yield from _terms(before)
