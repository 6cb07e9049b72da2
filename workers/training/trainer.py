"""The training loop of every workload that is trained by gradient descent.

The result depends on the seed, the data and the configuration alone. It does not depend on the
number of ranks, on interruptions, or on the time of evaluations. To that end the loss of a global
batch is divided by its global weight, batches are functions of (seed, epoch), and the random state
is set anew before each update.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from search_spaces.errors import DataError, TrialFailure
from search_spaces.knobs.table import (
    ACCUMULATION,
    COMPILE,
    LOADER_WORKERS,
    PRECISION,
    PREFETCH,
    RECORDS_GRAPHS,
)
from workers.batches import Batch, BatchShare
from workers.context import Context, Stopped
from workers.device.peak_memory import PeakMemory, nbytes, trim
from workers.device.precision import Precision, profiling
from workers.parallel.base import Strategy
from workers.parallel.mesh import sent
from workers.protocol import StopRequest
from workers.ranks import side_group, value_of_rank_0, values_of_all
from workers.workload import SharedEvaluation, Trainable

from . import SPEED_WINDOWS, Settings, checkpoint, options
from .optimizers import ClippedStep, DeferredNumbers, build_optimizer
from .setup import build_model, compiles_by_shape, strategy_of

Item = tuple[tuple[int, int], BatchShare]  # the epoch, the index in it, and what a rank computes
_TRIM_UPDATES = 16


def train(workload: Trainable, context: Context) -> dict[str, float]:
    """Train a workload on this rank and return its final metrics (rank 0; empty on other ranks).

    If the assignment says `resume`, training starts from the newest sound checkpoint in the trial's
    folder. It ends at the first of its limits, or if the context is asked to stop; it writes a
    checkpoint in either case.

    Raises:
        UsageError: an option has no such value, or the strategy cannot run on these ranks.
        TrialFailure: the loss is not finite, or a rank uses more memory than its limit.
    """
    settings = Settings.of(workload)
    with ExitStack() as stack:
        made = strategy_of(context, workload, options(workload), context.assignment.threads)
        trainer = Trainer(workload, context, settings, stack.enter_context(made))
        stack.push(lambda kind, error, trace: trainer.close(failed=kind is not None))
        return trainer.run()


@dataclass
class Window:
    """Sums over the updates since the last report.

    Args:
        begun: training seconds of all attempts when the window began.
        updates, items: their numbers since then; losses: sum of their mean losses.
    """

    begun: float = 0.0
    updates: int = 0
    items: float = 0.0
    losses: float = 0.0

    def metrics(self, now: float) -> dict[str, float]:
        """Mean loss and speed, where `now` is in training seconds; empty before an update."""
        if not self.updates:
            return {}
        seconds = max(now - self.begun, 1e-9)
        return {
            "train_loss": self.losses / self.updates,
            "items_per_second": self.items / seconds,
            "seconds_per_update": seconds / self.updates,
        }


class Trainer:
    """One rank's part in the training of one trial."""

    def __init__(
        self, workload: Trainable, context: Context, settings: Settings, strategy: Strategy
    ) -> None:
        self.workload = workload
        self.context = context
        self.settings = settings
        self.strategy = strategy
        self.values = values = options(workload)
        self.device = torch.device(context.device)
        self.precision = Precision(PRECISION.value(values), self.device)
        self.memory = context.memory or PeakMemory(self.device)
        model = build_model(workload, values, self.strategy.build_device, context.seed)
        embeddings = workload.plan(model).embeddings
        self.strategy.wrap(model)
        self.optimizer = build_optimizer(self.strategy.parameters(), values, embeddings)
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.writing: Future[None] = Future()  # of the last checkpoint
        self.writing.set_result(None)
        self.step = ClippedStep(self.strategy, self.optimizer, self.precision, settings.clip_norm)
        self.numbers = DeferredNumbers()
        self.before = self.seconds = context.assignment.previous_seconds  # of training
        self.position = (0, 0)
        self.updates = self.skipped = 0
        self.counted = 0  # the updates whose losses the ranks have summed
        self.metrics: dict[str, float] = {}
        self.window = Window(self.seconds)
        self.saved = (self.seconds, 0)  # and the updates, at the last checkpoint
        self.speeds: list[float] = []  # of the windows of `speed_updates`

    def run(self) -> dict[str, float]:
        """Train to the end."""
        if self.context.assignment.resume:
            self._restore()
        share_of = partial(
            self.strategy.share_of,
            accumulation=ACCUMULATION.value(self.values),
            bucketed=compiles_by_shape(self.values, self.device.type),
        )
        source = shares(self.workload, self.position, self.settings.max_epochs, share_of)
        loaders = LOADER_WORKERS.value(self.values)
        if loaders is None:
            loaders = int(self.device.type == "cuda" and self.context.assignment.threads > 1)
        depth = PREFETCH.value(self.values) if loaders else 0
        traced = profiling(
            self.settings.profile_updates, self.context.assignment.files, self.context.rank
        )
        with ahead(source, self.device, depth) as ready, traced as trace_step:
            item: Item | None = None
            while True:
                with self._clock():
                    item = item or next(ready, None)
                    orders = self._orders(exhausted=item is None)
                if stop := next((one for one in StopRequest if one in orders), None):
                    self.context.stop = stop
                    self._save(wait=False)
                    return self.metrics
                finish = "finish" in orders
                if finish or "evaluate" in orders:
                    self._report()
                if finish or "save" in orders:
                    self._save(beside=not finish)
                if finish:
                    return self.metrics
                # After an evaluation, agree once more: a request to stop may have ended it early.
                if item and "evaluate" not in orders:
                    with self._clock():
                        self._update(*item)
                    trace_step()
                    item = None
                    if self._speed_known():
                        return self.metrics

    @contextmanager
    def _clock(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begun

    def _orders(self, *, exhausted: bool) -> set[str]:
        """What all ranks do before the next update: the same, by one small all-reduce on the CPU.

        Rank 0 decides, but any rank can stop the attempt or report that it is out of memory.

        Returns:
            A request to stop, "finish" if a limit is reached, "evaluate", "save"; empty for none.
        """
        settings, seconds = self.settings, self.seconds
        limits = (settings.train_seconds, self.context.assignment.limits.train_seconds)
        full = settings.max_updates is not None and self.updates >= settings.max_updates
        asked, leads = self.context.stop_requested(), self.context.rank == 0
        own: dict[str, bool] = {
            **{request: asked is request for request in StopRequest},
            "finish": leads and (exhausted or full or any(_over(seconds, x) for x in limits)),
            "evaluate": leads
            and (
                _over(seconds - self.window.begun, settings.evaluate_seconds)
                or _over(self.window.updates, settings.evaluate_updates)
            ),
            "save": leads
            and (
                _over(seconds - self.saved[0], settings.checkpoint_seconds)
                or _over(self.updates - self.saved[1], settings.checkpoint_updates)
            ),
            "out_of_memory": self.context.memory_exceeded(),
        }
        found = summed([*map(float, own.values()), *self._losses()])
        orders = {name for name, count in zip(own, found, strict=False) if count}
        self._count(found[len(own) :])
        if "out_of_memory" in orders:
            limit = self.context.assignment.limits.memory_bytes
            raise TrialFailure("out_of_memory", f"a rank used more than its limit of {limit} bytes")
        if orders:  # reports and checkpoints take in the newest update
            self._count(summed(self._losses(newest=True)))
        return orders

    def _losses(self, *, newest: bool = False) -> list[float]:
        # This rank's shares of the mean losses that were not counted yet.
        numbers = self.numbers.take(newest=newest)
        self.skipped += sum(not finite for _, finite in numbers)
        return [share for share, _ in numbers]

    def _count(self, losses: Iterable[float]) -> None:
        """Take the mean losses of further updates in."""
        for loss in losses:
            self.counted += 1
            if not math.isfinite(loss):
                raise TrialFailure(
                    "non_finite", f"the training loss is {loss} at update {self.counted}"
                )
            self.window.losses += loss

    def _update(self, position: tuple[int, int], share: BatchShare) -> None:
        """Update the weights by one global batch."""
        self.updates += 1
        # Ranks that share a product draw the same numbers, and a resumed run draws them again.
        seed = (self.context.seed * 1_000_003 + self.updates) * 4_099
        torch.manual_seed(seed + self.context.rank // self.strategy.mesh.tensor)
        for group in self.optimizer.param_groups:
            group["lr"] = self.workload.learning_rate(self.updates)
        self.optimizer.zero_grad(set_to_none=True)
        if COMPILE.value(self.values) in RECORDS_GRAPHS:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self.strategy.gradients(share, self.precision)
        self.numbers.add(loss, self.step())
        self.window.updates += 1
        self.window.items += share.weight
        if self.device.type == "cpu" and self.updates % _TRIM_UPDATES == 0:
            trim()  # the free blocks that batches of other shapes left exceed the memory in use
        self.position = (position[0], position[1] + 1)

    def _report(self) -> None:
        """Evaluate and report on rank 0; evaluation is not training time."""
        evaluated = evaluate(self.workload, self.context, self.strategy, self.precision)
        if self.context.rank == 0:
            self.metrics |= {
                **(evaluated or {}),
                **self.window.metrics(self.seconds),
                "updates": float(self.updates),
                "epoch": float(self.position[0]),
                "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
                "skipped_updates": float(self.skipped),
                "train_seconds": self.seconds,
            }
            if evaluated is None:  # a request counts only if it ended the evaluation early
                self.context.stop = self.context.stop_requested()
            else:
                self.context.stop = None
                self.context.emit(self.updates, self.metrics, self.seconds - self.before)
        if evaluated is not None:
            self.window = Window(self.seconds)

    def _speed_known(self) -> bool:
        """Report a window of `speed_updates` that has ended; whether it was the last of all.

        The first window is not reported, because the first updates are slower.
        """
        each = self.settings.speed_updates
        if not each or self.updates % each:
            return False
        with self._clock():
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        if self.updates > each and self.context.rank == 0:
            speed = self.window.metrics(self.seconds)["items_per_second"]
            self.speeds.append(speed)
            found = {
                "items_per_second": speed,
                "peak_memory_bytes": float(self.memory.bytes()),
                "updates": float(self.updates),
            }
            self.context.emit(self.updates, found, self.seconds - self.before)
            self.metrics |= {**found, "items_per_second": median(self.speeds)}
        self.window = Window(self.seconds)
        return self.updates == (SPEED_WINDOWS + 1) * each

    def _save(self, *, wait: bool = True, beside: bool = False) -> None:
        """Write a checkpoint on rank 0, as folders may not be shared; all ranks take part.

        Args:
            wait: until it is on disk.
            beside: whether a thread writes it while the training goes on, if there is room.
        """
        self.writing.result()  # an error of the one before is raised here
        self.optimizer.zero_grad(set_to_none=True)
        self.saved = (self.seconds, self.updates)
        state = self.strategy.state(self.optimizer)
        if self.context.rank:
            return
        found = {kind: self.workload.canonical(tensors) for kind, tensors in state.items()}
        progress = {
            "position": self.position,
            "updates": self.updates,
            "skipped": self.skipped,
            "seconds": self.seconds,
            "window": {**vars(self.window), "begun": self.seconds - self.window.begun},
            "scaler": self.precision.scaler.state_dict() or None,
            "metrics": {key: value for key, value in self.metrics.items() if math.isfinite(value)},
            "workload": self.workload.name,
            "params": dict(self.context.params),
        }
        whole = checkpoint.Checkpoint(found.pop(""), found, progress)
        if beside and checkpoint.writes_beside(self.device, whole):
            self.writing = self.writer.submit(self._write, self.updates, deepcopy(whole), wait)
        else:
            self._write(self.updates, whole, wait)

    def _write(self, update: int, whole: checkpoint.Checkpoint, wait: bool) -> None:
        checkpoint.save(self.context.folder, update, whole, wait=wait)
        self.context.checkpointed()

    def _restore(self) -> None:
        """Go on from the newest sound checkpoint."""
        damaged: list[str] = []
        leads = self.context.rank == 0
        found = checkpoint.load(self.context.folder, damaged) if leads else None
        if damaged:
            self.context.details["damaged_checkpoints"] = damaged
        progress = value_of_rank_0(found.progress if found else None)
        if progress is None:
            return
        state = {"": found.model, **found.optimizer} if found else {}
        native = {kind: self.workload.native(tensors) for kind, tensors in state.items()}
        self.strategy.load(native, self.optimizer)
        self.position = tuple(progress["position"])
        self.updates = self.counted = progress["updates"]
        self.skipped = progress["skipped"]
        self.metrics = dict(progress["metrics"]) if leads else {}
        self.seconds = max(self.seconds, progress["seconds"])
        self.saved = (self.seconds, self.updates)
        begun = self.seconds - progress["window"]["begun"]
        self.window = Window(**{**progress["window"], "begun": begun})
        if scaled := self.precision.scaler.state_dict():
            self.precision.scaler.load_state_dict(scaled | (progress["scaler"] or {}))

    def _state_bytes(self, parameter: torch.Tensor) -> int:
        values = self.optimizer.state.get(parameter, {}).values()
        return sum(nbytes(value) for value in values if isinstance(value, torch.Tensor))

    def close(self, failed: bool) -> None:
        """Add the memory to the details of the outcome, and free the strategy."""
        parameters = self.strategy.parameters()
        self.context.details["state_bytes"] = {
            "parameters": sum(map(nbytes, parameters.values())),
            "optimizer": sum(map(self._state_bytes, parameters.values())),
        }
        self.writer.shutdown()  # a training that ends in order has seen its errors before
        if recorded := self.strategy.contributions:
            table = recorded.table(parameters, self._state_bytes)
            self.context.details["memory_by_module_bytes"] = table
        self.strategy.close(failed)


def _over(number: float, limit: float | None) -> bool:
    return limit is not None and number >= limit


def summed(numbers: Sequence[float]) -> list[float]:
    """The sum of each number over all ranks."""
    tensor = torch.tensor(numbers, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(tensor, group=side_group())
    found: list[float] = tensor.tolist()
    return found


def shares(
    workload: Trainable,
    start: tuple[int, int],
    max_epochs: int | None,
    share_of: Callable[[Batch], BatchShare],
) -> Iterator[Item]:
    """This rank's share of every batch from `start` on, with the position of the batch.

    Args:
        workload: makes the batches.
        start: the epoch of the first batch and its index in the epoch, both from 0.
        max_epochs: None for no end.
        share_of: see `Strategy.share_of`.

    Raises:
        DataError: an epoch has no batch.
    """
    epoch, begin = start
    while max_epochs is None or epoch < max_epochs:
        index = 0
        for index, batch in enumerate(workload.train_batches_from(epoch, begin), begin + 1):
            yield (epoch, index - 1), share_of(batch)
        if index == begin == 0:
            raise DataError(f"workload {workload.name!r} has no training batch in epoch {epoch}")
        epoch, begin = epoch + 1, 0


@contextmanager
def ahead(source: Iterator[Item], device: torch.device, depth: int) -> Iterator[Iterator[Item]]:
    """The same shares, in page-locked memory for a GPU: from other memory a copy makes it wait.

    Args:
        source: shares on the CPU.
        device: that computes.
        depth: how many a thread prepares ahead; 0 for no thread.
    """
    if device.type == "cuda":
        source = ((place, share.each(torch.Tensor.pin_memory)) for place, share in source)
    if not depth:
        yield source
        return
    pool = ThreadPoolExecutor(1)
    waiting = deque(pool.submit(next, source, None) for _ in range(depth))

    def ready() -> Item | None:
        """An error of the thread is raised at the position of the failed batch."""
        waiting.append(pool.submit(next, source, None))
        return waiting.popleft().result()

    try:
        yield iter(ready, None)
    finally:
        pool.shutdown(cancel_futures=True)


def evaluate(
    workload: Trainable, context: Context, strategy: Strategy, precision: Precision
) -> dict[str, float] | None:
    """Call the workload's evaluation; give up within a second if the attempt is asked to stop.

    If ranks hold parts of the model, each rank that evaluates builds a whole model, which it
    receives one tensor at a time and frees afterwards.

    Args:
        workload: whose `evaluate`, or `evaluate_share` and `combine`, are called.
        context: asked about requests to stop.
        strategy: holds the model.
        precision: the model is called under its autocast.

    Returns:
        Metrics on rank 0; empty on other ranks; None if asked to stop.
    """
    kind: Any = workload
    share = type(kind).evaluate is SharedEvaluation.evaluate
    evaluates = share or context.rank == 0
    model = _whole_model(workload, strategy, evaluates=evaluates)
    found: Any = None
    if evaluates:
        with suppress(Stopped), _evaluating(model, workload, context), precision.autocast():
            if share:
                found = kind.evaluate_share(
                    model, strategy.device, context.rank, context.world_size
                )
            else:
                found = kind.evaluate(model, strategy.device)
    if share:
        shares = values_of_all(found)
        found = None if any(one is None for one in shares) else kind.combine(shares)
    if context.rank:
        return {}
    return None if found is None else {key: float(value) for key, value in found.items()}


def _whole_model(workload: Trainable, strategy: Strategy, *, evaluates: bool) -> nn.Module:
    """The whole model, on the ranks that evaluate."""
    if strategy.replicated:
        return strategy.plain
    model = workload.build_model().to(strategy.device) if evaluates else nn.Module()
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, whole in sent(strategy.state()[""]):
            if name in held:
                held[name].copy_(whole)
    return model


@contextmanager
def _evaluating(model: nn.Module, workload: Trainable, context: Context) -> Iterator[None]:
    """The model in eval mode, looking for a request to stop in each of its calls."""

    def poll(module: nn.Module, arguments: Any) -> None:
        context.check_stop()

    # A long evaluation keeps calling the model, its parts or its layers.
    layers = map(model.get_submodule, workload.plan(model).layers)
    hooked = dict.fromkeys([model, *model.children(), *layers])
    handles = [module.register_forward_pre_hook(poll) for module in hooked]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
