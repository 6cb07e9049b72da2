"""The training loop of every workload that is trained by gradient descent.

What is computed is a function of the seed, the data and the configuration alone: not of the number of ranks, of how
often it was interrupted, or of when it was evaluated. To that end the loss of a global batch is divided by its global
weight, batches are functions of (seed, epoch), and the random state is set anew before each update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from search_spaces.errors import TrialFailure
from workers.device.peak_memory import PeakMemory, nbytes, trim
from workers.device.precision import Precision, weights_in
from workers.device.profiling import profiling
from workers.parallel import strategy_class
from workers.parallel.mesh import Mesh, connect, disconnect
from workers.protocol import WORKER_SPENT

from . import checkpoint
from .batches import Place, Prefetcher, batches
from .clock import Clock, Every, Window
from .control import Control, Orders
from .evaluation import Evaluator
from .optimizers import build_optimizer, step
from .selection import Selection
from .settings import Settings, options
from .torch_flags import recompute, switches

if TYPE_CHECKING:
    from workers.context import Context
    from workers.workload import Batch, Trainable

_TRIM_UPDATES = 16


def train(workload: Trainable, context: Context) -> dict[str, float]:
    """Train a workload on this rank and return its final metrics (rank 0; empty on other ranks).

    Training goes on from the newest sound checkpoint in the trial's folder where the assignment says `resume`, and
    ends at the first of its limits or if the context is asked to stop, with a checkpoint in either case.

    Raises:
        UsageError: an option has no such value, or the strategy cannot run on these ranks.
        TrialFailure: the loss is not finite, or a rank takes more memory than it may.
    """
    settings = Settings.of(workload)
    with ExitStack() as stack:
        stack.enter_context(switches(settings, context.assignment.threads))
        if context.world_size > 1:
            backend = str(options(workload).get("backend", ""))
            connect(
                context.rank,
                context.world_size,
                context.rendezvous,
                torch.device(context.device),
                backend,
            )
            stack.callback(disconnect)
        trainer = Trainer(workload, context, settings)
        stack.push(lambda kind, error, trace: trainer.close(failed=kind is not None))
        return trainer.run()


class Trainer:
    """One rank's part in the training of one trial."""

    def __init__(self, workload: Trainable, context: Context, settings: Settings) -> None:
        self.workload, self.context, self.settings = workload, context, settings
        self.device = torch.device(context.device)
        self.precision = Precision(settings.precision, self.device)
        self.memory = context.memory or PeakMemory(self.device)
        given = {**options(workload), "rendezvous": context.rendezvous}
        kind = strategy_class(settings.parallelism)
        mesh = Mesh(context.rank, context.world_size, **kind.degrees(context.world_size, given))
        self.strategy = kind(mesh, workload, self.device, given)
        self.strategy.wrap(self._model())
        self.optimizer = self.strategy.optimizer(
            lambda parameters: build_optimizer(parameters, given)
        )
        self.control = Control(context)
        self.evaluator = Evaluator(workload, context, self.strategy, self.precision)
        self.clock = Clock(context.assignment.previous_seconds)
        self.evaluations = Every(settings.evaluate_seconds, settings.evaluate_updates)
        self.checkpoints = Every(settings.checkpoint_seconds, settings.checkpoint_updates)
        self.selection = Selection(settings, context.folder, workload.metrics)
        self.rate_scale = 1.0
        self.place, self.updates, self.skipped = Place(), 0, 0
        self.metrics: dict[str, float] = {}
        self.window, self.saved_at, self.saved_updates = (
            Window(self.clock.total),
            self.clock.total,
            0,
        )
        self.traced: Callable[[], None] = lambda: (
            None
        )  # at the end of each update, where they are traced
        self.half = 0.0  # the clock at half of the updates of a probe
        self.share: float | None = (
            None  # this rank's share of the last update's mean loss, until it is agreed on
        )

    def _model(self) -> torch.nn.Module:
        torch.manual_seed(self.context.seed)
        form = (
            torch.channels_last
            if self.settings.memory_format == "channels_last"
            else torch.contiguous_format
        )
        with weights_in("fp32"):  # the same numbers under every precision
            model = self.workload.build_model()
        model.to(self.device, torch.get_default_dtype())
        for parameter in model.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=form)
        recompute(model, self.workload.plan(model).layers, self.settings.activation_checkpointing)
        if self.settings.compile != "off":
            model.compile(mode=self.settings.compile)
        return model.train()

    def run(self) -> dict[str, float]:
        """Train to the end."""
        if self.context.assignment.resume:
            self._restore()
        source = batches(self.workload, self.place, self.settings.max_epochs)
        prefetcher = (
            Prefetcher(source, self.settings.prefetch) if self.settings.loader_workers else None
        )
        folder, rank = self.context.folder, self.context.rank
        try:
            with profiling(self.settings.profile_updates, folder, rank) as self.traced:
                return self._loop(prefetcher or source)
        finally:
            if prefetcher:
                prefetcher.close()

    def _loop(self, source: Iterator[tuple[Place, Batch]]) -> dict[str, float]:
        item: tuple[Place, Batch] | None = None
        while True:
            with self.clock:
                item = item or next(source, None)
                orders = self.control.agree(self._wishes(item is None), self.share)
            self._check(orders)
            if orders.stop:
                self.context.accept_stop(orders.stop)
                self._save(wait=False)
                return self.metrics
            if orders.evaluate or orders.finish:
                self._report()
            if orders.finish and self.settings.average_best:
                self._average()
            if orders.save or orders.finish:
                self._save()
            if orders.finish:
                return self.metrics
            if (
                item and not orders.evaluate
            ):  # else agree once more: a stop request may have cut the evaluation short
                with self.clock:
                    self._update(*item)
                self.traced()
                item = None
                self._probe()

    def _wishes(self, exhausted: bool) -> Orders:
        """What this rank would do next; only rank 0's clock and requests count."""
        seconds, settings = self.clock.total, self.settings
        limits = [settings.train_seconds, self.context.assignment.limits.train_seconds]
        late = any(limit is not None and seconds >= limit for limit in limits)
        full = settings.max_updates is not None and self.updates >= settings.max_updates
        return Orders(
            stop=self.context.stop_requested(),
            finish=late or full or exhausted or self.selection.done,
            scale=self.selection.scale,
            evaluate=self.evaluations.due(seconds - self.window.begun, self.window.updates),
            save=self.checkpoints.due(seconds - self.saved_at, self.updates - self.saved_updates),
            out_of_memory=self.control.memory_exceeded(self.memory),
        )

    def _check(self, orders: Orders) -> None:
        if orders.out_of_memory:
            limit = self.context.assignment.limits.memory_bytes
            raise TrialFailure(
                "out_of_memory", f"a rank used more than the {limit} bytes that it may use"
            )
        if not math.isfinite(orders.loss):
            raise TrialFailure(
                "non_finite", f"the training loss is {orders.loss} at update {self.updates}"
            )
        self.rate_scale = orders.scale
        if self.share is not None:
            self.window.losses += orders.loss
            self.share = None

    def _update(self, place: Place, batch: Batch) -> None:
        """One update of the weights by one global batch."""
        self.updates += 1
        torch.manual_seed(self._random_seed())
        for group in self.optimizer.param_groups:
            group["lr"] = self.workload.learning_rate(self.updates) * self.rate_scale
        self.optimizer.zero_grad(set_to_none=True)
        weight = self.workload.weight(batch)
        share = self.strategy.gradients(batch, weight, self.precision, self.settings.accumulation)
        finite = self._step()
        if self.precision.scaler:
            self.precision.scaler.update(finite)
        self.skipped += not finite
        self.share = float(share)
        self.window.count(weight)
        if self.device.type == "cpu" and self.updates % _TRIM_UPDATES == 0:
            trim()  # pieces that batches of other shapes left free add up to more than what is in use
        self.place = Place(place.epoch, place.index + 1)

    def _step(self) -> bool:
        """Unscale and clip gradients and step; False where they are not finite and the step was skipped."""
        norm = self.strategy.grad_norm() / self.precision.scale
        if not math.isfinite(norm):
            return False
        clip = self.settings.clip_norm
        factor = (min(1.0, clip / (norm + 1e-6)) if clip else 1.0) / self.precision.scale
        if factor != 1.0:
            self.strategy.scale_gradients(factor)
        step(self.optimizer)
        return True

    def _random_seed(self) -> int:
        """A function of trial, update and rank, the same on ranks that share a product, and after a resume."""
        mesh = self.strategy.mesh
        return (self.context.seed * 1_000_003 + self.updates) * 4_099 + mesh.rank // mesh.tensor

    def _report(self) -> None:
        """Evaluate, and report what is known on rank 0; evaluation is not training time."""
        evaluated = self.evaluator.evaluate()
        if self.context.rank == 0:
            self.metrics |= {**(evaluated or {}), **self._progress_metrics()}
            if evaluated is not None:
                seconds = self.clock.total - self.context.assignment.previous_seconds
                self.context.emit(self.updates, self.metrics, seconds)
            # a request that comes when the end is reached changes nothing, one that cut the evaluation short does
            self.context.accept_stop(
                None if evaluated is not None else self.context.stop_requested()
            )
        if evaluated is not None:
            self.window = Window(self.clock.total)
        self._select(evaluated if self.context.rank == 0 else None)

    def _probe(self) -> None:
        """After so many updates, report speed (of the second half of them: the first are slower) and memory."""
        last, context = self.settings.probe_updates, self.context
        if self.updates == (last + 1) // 2:
            self.half = self.clock.total
        if self.updates != last or context.rank or last < 2:
            return
        each = (self.clock.total - self.half) / (last - (last + 1) // 2)
        found = {
            "seconds_per_update": each,
            "peak_memory_bytes": float(self.memory.bytes()),
            "updates": float(last),
        }
        context.emit(last, found, self.clock.total - context.assignment.previous_seconds)

    def _select(self, evaluated: Mapping[str, float] | None) -> None:
        """Compare an evaluation with those before; None on other ranks, and where it was cut short."""
        if evaluated is not None:
            self.selection.see(evaluated)
        if self.settings.average_best:
            state = (
                self.strategy.state()
            )  # by all ranks, which cannot know whether rank 0's evaluation was cut short
            if evaluated is not None:
                self.selection.keep(evaluated, self.updates, self.workload.canonical(state))

    def _average(self) -> None:
        """Put the mean of the best weights in place of the last ones, and report what it gives."""
        box = [self.selection.average(self.updates) if self.context.rank == 0 else {}]
        if self.context.world_size > 1:
            dist.broadcast_object_list(
                box, src=0, device=torch.device("cpu"), group=self.control.group
            )
        if box[0]:
            self.strategy.load(self.workload.native(box[0]))
            self._report()

    def _progress_metrics(self) -> dict[str, float]:
        return {
            **self.window.metrics(self.clock.total),
            "updates": float(self.updates),
            "epoch": float(self.place.epoch),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "skipped_updates": float(self.skipped),
            "train_seconds": self.clock.total,
        }

    def _save(self, *, wait: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        state, optimizer = self.strategy.state(), self.strategy.optimizer_state(self.optimizer)
        self.saved_at, self.saved_updates = self.clock.total, self.updates
        if self.context.rank == 0:
            form = self.workload.canonical
            saved = checkpoint.Checkpoint(
                form(state), checkpoint.by_key(optimizer, form), self._progress()
            )
            checkpoint.save(self.context.folder, self.updates, saved, wait=wait)

    def _progress(self) -> dict[str, Any]:
        scaler = self.precision.scaler
        return {
            "epoch": self.place.epoch,
            "index": self.place.index,
            "updates": self.updates,
            "skipped": self.skipped,
            "seconds": self.clock.total,
            "window": {**vars(self.window), "begun": self.clock.total - self.window.begun},
            "scaler": scaler.state() if scaler else None,
            "selection": self.selection.state(),
            "metrics": {key: value for key, value in self.metrics.items() if math.isfinite(value)},
            "workload": self.workload.name,
            "params": dict(self.context.params),
        }

    def _restore(self) -> None:
        """Go on from the newest sound checkpoint; rank 0 reads it for all, since folders may not be shared."""
        passed_over: list[str] = []
        found = (
            checkpoint.load(self.context.folder, passed_over) if self.context.rank == 0 else None
        )
        if passed_over:
            self.context.details["damaged_checkpoints"] = passed_over
        if self.context.world_size > 1:
            box = [found]
            dist.broadcast_object_list(
                box, src=0, device=torch.device("cpu"), group=self.control.group
            )
            found = box[0]
        if found is None:
            return
        self.strategy.load(self.workload.native(found.model))
        self.strategy.load_optimizer_state(
            self.optimizer, checkpoint.by_key(found.optimizer, self.workload.native)
        )
        progress: Mapping[str, Any] = found.progress
        self.place = Place(progress["epoch"], progress["index"])
        self.updates, self.skipped = progress["updates"], progress["skipped"]
        self.metrics = dict(progress["metrics"]) if self.context.rank == 0 else {}
        self.clock.previous = max(self.clock.previous, progress["seconds"])
        self.saved_at, self.saved_updates = self.clock.total, self.updates
        self.window = Window(
            **{**progress["window"], "begun": self.clock.total - progress["window"]["begun"]}
        )
        self.selection.load(progress.get("selection", self.selection.state()))
        if self.precision.scaler and progress["scaler"]:
            self.precision.scaler.load(progress["scaler"])

    def _held(self) -> dict[str, int]:
        """Bytes of parameters and of optimizer state on this rank."""
        parameters = list(self.strategy.parameters().values())
        return {
            "parameters": sum(map(nbytes, parameters)),
            "optimizer": sum(map(self._state_bytes, parameters)),
        }

    def _state_bytes(self, parameter: torch.Tensor) -> int:
        values = self.optimizer.state.get(parameter, {}).values()
        return sum(nbytes(value) for value in values if isinstance(value, torch.Tensor))

    def close(self, failed: bool) -> None:
        """Free what the strategy started, and tell what was counted."""
        self.context.details["skipped_updates"] = self.skipped
        self.context.details["state_bytes"] = self._held()
        if self.strategy.spends_process:
            self.context.details[WORKER_SPENT] = True
        found = getattr(self.strategy, "contributions", None)
        if found is not None:
            table = found.table(self.strategy.parameters(), self._state_bytes)
            self.context.details["memory_by_module_bytes"] = table
        self.strategy.close(failed)
