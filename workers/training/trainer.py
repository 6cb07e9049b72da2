"""The training loop of every workload that is trained by gradient descent.

The result depends on the seed, the data and the configuration alone. It does not depend on the
number of ranks, on interruptions, or on the time of evaluations. To that end the loss of a global
batch is divided by its global weight, batches are functions of (seed, epoch), and the random state
is set anew before each update.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from statistics import median

import torch

from search_spaces.errors import TrialFailure
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import (
    COMPILE,
    LOADER_WORKERS,
    PRECISION,
    PREFETCH,
    RECORDS_GRAPHS,
)
from workers.context import Context
from workers.data.batch import BatchShare
from workers.device.peak_memory import PeakMemory, nbytes, trim
from workers.device.precision import Precision
from workers.device.profiling import profiling
from workers.parallel import STRATEGIES
from workers.parallel.mesh import BACKEND, Mesh
from workers.parallel.transfers import own_part
from workers.ranks.process_group import connect, disconnect
from workers.workload import Trainable

from .batches import BatchPosition, ahead, shares
from .checkpoint import Saver
from .control import Clock, Orders, Window, agreed, summed
from .evaluation import ValidationRunner
from .optimizers import build_optimizer
from .settings import SPEED_WINDOWS, Settings, options
from .setup import build_model, compiles_by_shape, switches
from .step import ClippedStep, DeferredNumbers

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
    values = options(workload)
    with ExitStack() as stack:
        stack.enter_context(switches(values, context.assignment.threads, context.device))
        if context.world_size > 1:
            connect(
                context.rank,
                context.world_size,
                context.rendezvous,
                torch.device(context.device),
                str(BACKEND.value(values)),
            )
            stack.push(lambda kind, error, trace: disconnect(failed=kind is not None))
        trainer = Trainer(workload, context, settings)
        stack.push(lambda kind, error, trace: trainer.close(failed=kind is not None))
        return trainer.run()


class Trainer:
    """One rank's part in the training of one trial."""

    def __init__(self, workload: Trainable, context: Context, settings: Settings) -> None:
        self.workload = workload
        self.context = context
        self.settings = settings
        self.values = values = options(workload)
        self.device = torch.device(context.device)
        self.precision = Precision(PRECISION.value(values), self.device)
        self.memory = context.memory or PeakMemory(self.device)
        kind = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, values))
        self.strategy = kind(mesh, workload, self.device, values)
        model = build_model(workload, values, self.strategy.build_device, context.seed)
        embeddings = workload.plan(model).embeddings
        self.strategy.wrap(model)
        parameters = self.strategy.parameters()
        self.optimizer = build_optimizer(parameters, values, workload.outer, embeddings)
        self.saver = Saver(workload, context, self.strategy, self.optimizer)
        self.validation = ValidationRunner(workload, context, self.strategy, self.precision)
        self.step = ClippedStep(self.strategy, self.optimizer, self.precision, settings.clip_norm)
        self.numbers = DeferredNumbers()
        self.clock = Clock(context.assignment.previous_seconds)
        self.position = BatchPosition()
        self.updates = 0
        self.skipped = 0
        self.counted = 0  # the updates whose losses the ranks have summed
        self.metrics: dict[str, float] = {}
        self.window = Window(self.clock.total)
        self.saved = (self.clock.total, 0)  # the clock and the updates at the last checkpoint
        self.speeds: list[float] = []  # of the windows of `speed_updates`

    def run(self) -> dict[str, float]:
        """Train to the end."""
        if self.context.assignment.resume:
            self._restore()
        share_of = partial(
            self.strategy.share_of,
            accumulation=self.settings.accumulation,
            bucketed=compiles_by_shape(self.values, self.device.type),
        )
        source = shares(self.workload, self.position, self.settings.max_epochs, share_of)
        loaders = LOADER_WORKERS.value(self.values)
        if loaders is None:
            loaders = int(self.device.type == "cuda" and self.context.assignment.threads > 1)
        depth = PREFETCH.value(self.values) if loaders else 0
        traced = profiling(self.settings.profile_updates, self.context.files, self.context.rank)
        with ahead(source, self.device, depth) as ready, traced as trace_step:
            return self._loop(ready, trace_step)

    def _loop(
        self, source: Iterator[tuple[BatchPosition, BatchShare]], trace_step: Callable[[], None]
    ) -> dict[str, float]:
        item: tuple[BatchPosition, BatchShare] | None = None
        while True:
            with self.clock:
                item = item or next(source, None)
                orders = self._orders(exhausted=item is None)
            if orders.stop:
                self.context.accept_stop(orders.stop)
                self._save(wait=False)
                return self.metrics
            if orders.evaluate or orders.finish:
                self._report()
            if orders.save or orders.finish:
                self._save(beside=not orders.finish)
            if orders.finish:
                return self.metrics
            # After an evaluation, agree once more: a request to stop may have ended it early.
            if item and not orders.evaluate:
                with self.clock:
                    self._update(*item)
                trace_step()
                item = None
                if self._speed_known():
                    return self.metrics

    def _orders(self, *, exhausted: bool) -> Orders:
        """What all ranks do next; an update if it is nothing else."""
        settings, seconds = self.settings, self.clock.total
        limits = (settings.train_seconds, self.context.assignment.limits.train_seconds)
        full = settings.max_updates is not None and self.updates >= settings.max_updates
        window, saved = self.window, self.saved
        own = Orders(
            stop=self.context.stop_requested(),
            finish=exhausted or full or any(x is not None and seconds >= x for x in limits),
            evaluate=_over(seconds - window.begun, settings.evaluate_seconds)
            or _over(window.updates, settings.evaluate_updates),
            save=_over(seconds - saved[0], settings.checkpoint_seconds)
            or _over(self.updates - saved[1], settings.checkpoint_updates),
            out_of_memory=self.context.memory_exceeded(),
        )
        orders, losses = agreed(own, self._losses())
        self._count(losses)
        if orders.out_of_memory:
            limit = self.context.assignment.limits.memory_bytes
            raise TrialFailure("out_of_memory", f"a rank used more than its limit of {limit} bytes")
        if orders != Orders():  # reports and checkpoints take in the newest update
            self._count(summed(self._losses(newest=True)))
        return orders

    def _losses(self, *, newest: bool = False) -> list[float]:
        """This rank's shares of the mean losses that were not counted yet."""
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

    def _update(self, position: BatchPosition, share: BatchShare) -> None:
        """Update the weights by one global batch."""
        self.updates += 1
        # Ranks that share a product draw the same numbers, and a resumed run draws them again.
        seed = (self.context.seed * 1_000_003 + self.updates) * 4_099
        torch.manual_seed(seed + self.context.rank // self.strategy.mesh.tensor)
        for group in self.optimizer.param_groups:
            group["lr"] = self.workload.learning_rate(self.updates)
        self.optimizer.zero_grad(set_to_none=True)
        share.ready()
        if COMPILE.value(self.values) in RECORDS_GRAPHS:
            # The outputs of the last update may be replaced.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self.strategy.gradients(share, self.precision)
        self.numbers.add(loss, self.step())
        self.window.updates += 1
        self.window.items += share.weight
        if self.device.type == "cpu" and self.updates % _TRIM_UPDATES == 0:
            trim()  # the free blocks that batches of other shapes left exceed the memory in use
        self.position = BatchPosition(position.epoch, position.index + 1)

    def _report(self) -> None:
        """Evaluate and report on rank 0; evaluation is not training time."""
        evaluated = self.validation.evaluate()
        if self.context.rank == 0:
            self.metrics |= {
                **(evaluated or {}),
                **self.window.metrics(self.clock.total),
                "updates": float(self.updates),
                "epoch": float(self.position.epoch),
                "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
                "skipped_updates": float(self.skipped),
                "train_seconds": self.clock.total,
            }
            if evaluated is None:  # a request counts only if it ended the evaluation early
                self.context.accept_stop(self.context.stop_requested())
            else:
                self.context.accept_stop(None)
                self._emit(self.metrics)
        if evaluated is not None:
            self.window = Window(self.clock.total)

    def _emit(self, metrics: dict[str, float]) -> None:
        seconds = self.clock.total - self.context.assignment.previous_seconds
        self.context.emit(self.updates, metrics, seconds)

    def _speed_known(self) -> bool:
        """Report a window of `speed_updates` that has ended; whether it was the last of all.

        The first window is not reported, because the first updates are slower.
        """
        each = self.settings.speed_updates
        if not each or self.updates % each:
            return False
        with self.clock:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        if self.updates > each and self.context.rank == 0:
            speed = self.window.metrics(self.clock.total)["items_per_second"]
            self.speeds.append(speed)
            found = {
                "items_per_second": speed,
                "peak_memory_bytes": float(self.memory.bytes()),
                "updates": float(self.updates),
            }
            self._emit(found)
            self.metrics |= {**found, "items_per_second": median(self.speeds)}
        self.window = Window(self.clock.total)
        return self.updates == (SPEED_WINDOWS + 1) * each

    def _save(self, *, wait: bool = True, beside: bool = False) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.saved = (self.clock.total, self.updates)
        scaler = self.precision.scaler
        progress = {
            "epoch": self.position.epoch,
            "index": self.position.index,
            "updates": self.updates,
            "skipped": self.skipped,
            "seconds": self.clock.total,
            "window": {**vars(self.window), "begun": self.clock.total - self.window.begun},
            "scaler": scaler.state() if scaler else None,
            "metrics": {key: value for key, value in self.metrics.items() if math.isfinite(value)},
            "workload": self.workload.name,
            "params": dict(self.context.params),
        }
        self.saver.save(self.updates, progress, wait=wait, beside=beside)

    def _restore(self) -> None:
        """Go on from the newest sound checkpoint."""
        progress = self.saver.load()
        if progress is None:
            return
        self.position = BatchPosition(progress["epoch"], progress["index"])
        self.updates = self.counted = progress["updates"]
        self.skipped = progress["skipped"]
        self.metrics = dict(progress["metrics"]) if self.context.rank == 0 else {}
        self.clock.previous = max(self.clock.previous, progress["seconds"])
        self.saved = (self.clock.total, self.updates)
        begun = self.clock.total - progress["window"]["begun"]
        self.window = Window(**{**progress["window"], "begun": begun})
        if self.precision.scaler and progress["scaler"]:
            self.precision.scaler.load(progress["scaler"])

    def _state_bytes(self, parameter: torch.Tensor) -> int:
        """Bytes of the optimizer state of a parameter on this rank."""
        values = own_part(self.optimizer).state.get(parameter, {}).values()
        return sum(nbytes(value) for value in values if isinstance(value, torch.Tensor))

    def close(self, failed: bool) -> None:
        """Add counts and memory to the details of the outcome, and free the strategy."""
        parameters = self.strategy.parameters()
        details = self.context.details
        details["skipped_updates"] = self.skipped
        details["state_bytes"] = {
            "parameters": sum(map(nbytes, parameters.values())),
            "optimizer": sum(map(self._state_bytes, parameters.values())),
        }
        with suppress(Exception):  # a training that ends in order has waited before
            self.saver.finish()
        if recorded := self.strategy.contributions:
            table = recorded.table(parameters, self._state_bytes)
            details["memory_by_module_bytes"] = table
        self.strategy.close(failed)


def _over(number: float, limit: float | None) -> bool:
    return limit is not None and number >= limit
