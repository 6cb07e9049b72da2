"""The context of a running trial: its parameters, its folder, and the way to report."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from search_spaces.errors import TrialFailure, UsageError, no_attribute

from .functions.numbers import explained, numbers_of
from .functions.suggesting import Asking, Suggesting
from .protocol import CHECKPOINTS, Asked, Assignment, Params, Report, StopRequest

if TYPE_CHECKING:
    from .ranks import Meeting

# Keys of a saved state beside those of the user: what the prepared loop needs, and a state that is
# no mapping.
_LOOP: Final = "trial.prepare"
_ALONE: Final = "trial.save"


class Stopped(Exception):
    """The attempt was asked to stop and gives up its current work; see `Context.check_stop`."""


@dataclass
class Context(Suggesting):
    """One rank's view of its attempt.

    Args:
        assignment: the attempt.
        send: sends a report, or a question to the controller (rank 0 only; other ranks have a
            function that does nothing).
        stop_requested: polls for a stop request; cheap, called at every step.
        rank, world_size: of this process in the trial's gang.
        rendezvous: address at which the ranks meet, for `workers.ranks.connect`:
            "file:///path", or "tcp://host:port" of a store that already listens; "" for one rank.
        device: "cpu" or "cuda:0", as the worker sees it.
        details: facts for the outcome, filled in while running.
    """

    assignment: Assignment
    send: Callable[[Any], None] = lambda event: None
    stop_requested: Callable[[], StopRequest | None] = lambda: None
    rank: int = 0
    world_size: int = 1
    rendezvous: str = ""
    device: str = "cpu"
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.message = ""  # of the outcome, unless the attempt fails
        self.pruned = False  # the objective has stopped its trial, and nobody had asked it to
        self._begun = time.monotonic()
        self._sequence = 0
        self._lock = threading.Lock()  # an objective may report from several threads
        self._over = False
        self.reported: set[str] = set()  # names of metrics
        self.failed_at: float | None = None  # by the clock of this machine
        # The request that ends this attempt; None if it ends by itself after all.
        self.stop: StopRequest | None = None
        self.checkpointed: Callable[[], None] = lambda: None  # call it after each checkpoint
        self.memory: Any = None  # workers.device.peak_memory.PeakMemory, while `workers.run` runs
        self.loop: Any = None  # workers.own_loop.prepare.PreparedLoop, once `prepare` was called
        self.preparing: Any = None  # workers.own_loop.prepare.prepare, while `workers.run` runs
        self.loop_state: Any = None  # what `restore` has read of it
        a = self.assignment
        self.asking = Asking(a.asked, a.params, a.trial, a.seed, self._tell_asked)

    def __getattr__(self, name: str) -> NoReturn:
        no_attribute("a trial", name, dir(self))

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(f"a trial is no mapping of its parameters: write trial.params[{name!r}]")

    @property
    def params(self) -> Mapping[str, Any]:
        """The active parameters; those that were asked for, if `suggest_...` declares them."""
        return self.assignment.params if self.assignment.asked is None else self.asking.values

    @property
    def folder(self) -> Path:
        """The trial's folder; it exists."""
        return Path(self.assignment.folder)

    @property
    def checkpoint_dir(self) -> Path:
        """A folder for checkpoints; it exists, and outlives attempts and pauses.

        It is deleted once the trial is of no more use, or if all take half of the free disk.

        Raises:
            StoreError: a link or a pipe is in its place.
        """
        (self.assignment.files / CHECKPOINTS).make()
        return self.folder / CHECKPOINTS

    @cached_property
    def resumed(self) -> bool:
        """Whether an earlier attempt at this trial has left files in `checkpoint_dir`."""
        return self.assignment.resume and bool((self.assignment.files / CHECKPOINTS).names())

    def save(self, state: Any) -> None:
        """Save a state, such as `{"model": model.state_dict(), "epoch": 3}`, for `restore`.

        It is written as a whole, or not at all; the one before is kept too. Rank 0 writes, so all
        ranks may call it. After `prepare`, the order of the loader, the random generators and the
        scheduler are saved with it.

        Args:
            state: mappings, lists and tuples of arrays, tensors, numbers, texts and None.

        Raises:
            UsageError: something else is in the state.
            OSError: it cannot be written.
        """
        from .functions.saved_state import save_state

        if self.rank == 0:
            if self.loop is not None:
                whole = dict(state) if isinstance(state, Mapping) else {_ALONE: state}
                state = {**whole, _LOOP: self.loop.state_dict()}
            save_state(self.assignment.files / CHECKPOINTS, state)
            self.checkpointed()

    def restore(self) -> Any:
        """The newest state that `save` has written, in an earlier attempt or in this one; or None.

        Tensors are on the CPU. If the newest is damaged, the one before counts, and the trial's log
        says so. If there are several ranks, all must call it, and the trial's folder must be on a
        disk that they share. A prepared loop then goes on with the loader's order, the random
        numbers and the learning rate of that moment.
        """
        from .functions.saved_state import restore_state

        damaged: list[str] = []
        state = restore_state(self.assignment.files / CHECKPOINTS, damaged)
        if damaged:
            self.details["damaged_checkpoints"] = damaged
        for path in damaged:
            print(f"the saved state {path} is damaged: the one before is used", file=sys.stderr)
        if isinstance(state, dict) and _LOOP in state:
            self.loop_state = state.pop(_LOOP)
            state = state.get(_ALONE, state)
            if self.loop is not None:
                self.loop.load_state_dict(self.loop_state)
        self.barrier()  # no rank saves another before all have read this one
        return state

    def prepare(self, *objects: Any, **options: Any) -> Any:
        """Let a training loop of PyTorch train under the trial's settings.

        The parameters that are knobs (`automl.knobs`) act: precision, compile, recomputation,
        accumulation, the optimizer's implementation, and the strategy of several ranks. A loader
        gives global batches; here it yields this rank's microbatches, on `device`. `step` and
        `zero_grad` of the optimizer, and `step` of a scheduler, act once an update. With several
        ranks, each calls this, and the weights of rank 0 count.

        Every setting gives the same loss, if it is a mean over the rows of a batch.

        Example:
            >>> model, optimizer, loader = trial.prepare(model, optimizer, loader)
            >>> for step, (x, y) in enumerate(loader):
            ...     loss = cross_entropy(model(x), y)
            ...     trial.backward(loss)
            ...     optimizer.step()
            ...     optimizer.zero_grad()
            ...     if not trial.report(step, loss=loss):
            ...         break

        Args:
            objects: a model, an optimizer, a scheduler and a loader (any iterable of batches, whose
                tensors have their rows in dim 0), in any order. Any may be left out.
            options: settings that are not tuned, such as `clip_norm=1.0` or `accumulation=2`. With
                `local_batch_norm=True` batch norms may see the rows of a microbatch alone.

        Returns:
            What was given, prepared, in its order; a single object by itself.

        Raises:
            UsageError: a setting cannot act on this model, optimizer or loader.
        """
        return self.preparing(self, objects, options)

    def backward(self, loss: Any, weight: Any = None) -> None:
        """Add the gradients of a microbatch's loss, a scalar; call it after `prepare`.

        The loss is a mean over rows, or over tokens that are not padding. It is scaled for
        accumulation, ranks and fp16.

        Args:
            loss: of the microbatch.
            weight: the number of items that it is a mean over; needed only if the batch is divided
                and they are not those that `torch.nn.functional.cross_entropy` counts, or a
                division of the loop's own, such as `total / mask.sum()`.

        Raises:
            UsageError: the parts of the loss count by something that must be given.
        """
        if self.loop is None:
            raise UsageError("trial.backward(loss) needs trial.prepare(model, ...) before")
        self.loop.backward(loss, weight)

    def barrier(self) -> None:
        """Wait until every rank of the trial has called this as often; returns at once for one.

        Raises:
            RuntimeError: a rank has ended instead.
        """
        if self.world_size > 1:
            self._meeting.barrier()

    @contextmanager
    def meeting_ranks(self) -> Iterator[None]:
        """While inside, the ranks of an objective find each other by torchrun's variables."""
        if not self.assignment.torchrun:
            yield
            return
        variables = self._meeting.variables()
        before = {name: os.environ[name] for name in variables if name in os.environ}
        os.environ.update(variables)
        try:
            yield
        finally:
            self._meeting.leave()
            for name in variables:
                os.environ.pop(name, None)
            os.environ.update(before)

    @cached_property
    def _meeting(self) -> "Meeting":
        from .ranks import Meeting  # imports torch

        own_gpus = self.assignment.gpus > 0
        return Meeting(self.rank, self.world_size, self.rendezvous, own_gpus=own_gpus)

    @property
    def number(self) -> int:
        """The trial's number in its sweep."""
        return self.assignment.trial

    @property
    def seed(self) -> int:
        """Seed of everything random in this trial; the same in each of its attempts."""
        return self.assignment.seed

    def check_stop(self) -> None:
        """Raise Stopped if the attempt was asked to stop; `stop` is then the request."""
        if (request := self.stop_requested()) is not None:
            self.stop = request
            raise Stopped

    @explained
    def report(self, step: int, **metrics: Any) -> bool:
        """Send metrics at a step; returns False if the trial was asked to stop and should return.

        A metric is a number, or an array or tensor of one element. If the trial has several ranks,
        each of them must report the same steps, and all get the same answer. Only the metrics of
        rank 0 count; after `prepare`, their mean over the ranks and the microbatches of an update.
        A step that counts microbatches becomes the number of the update.

        Raises:
            TrialFailure: a metric is not a number ("missing_metric"), or this rank has used more
                memory than `resources.memory` allows ("out_of_memory").
            TypeError: a metric has no name, or the step is no whole number.
        """
        self.check_memory()
        if self.loop is not None:
            return bool(self.loop.report(step, metrics))
        return self.emit(step, metrics)

    def should_prune(self) -> bool:
        """Whether the trial was asked to stop, as the answer of `report` says too."""
        self.stop = self.stop or self.stop_requested()
        return self.stop is not None

    def _tell_asked(self, params: Params, parameter: Mapping[str, Any], line: str) -> None:
        with self._lock:
            if not self._over:
                a = self.assignment
                self.send(Asked(a.trial, a.attempt, params, parameter, line))

    def close(self) -> None:
        """The attempt is over: reports of threads that it has left behind are ignored."""
        with self._lock:
            self._over = True

    def emit(self, step: int, metrics: Mapping[str, Any], seconds: float | None = None) -> bool:
        """Like `report`, as it is.

        Args:
            step: of the report.
            metrics: by name.
            seconds: of training in this attempt, by a trainer's clock; else since it began.
        """
        numbers = numbers_of(metrics)
        seconds = time.monotonic() - self._begun if seconds is None else seconds
        a = self.assignment
        with self._lock:
            if self._over:
                return False
            report = Report(
                a.trial,
                a.attempt,
                self._sequence,
                int(step),
                numbers,
                a.previous_seconds + seconds,
            )
            self._sequence += 1
            self.reported |= numbers.keys()
            self.send(report)
        self.stop = self.stop_requested()
        if self.loop is not None:
            self.stop = self.loop.agreed(self.stop)
        elif self.assignment.torchrun and self.world_size > 1:
            # Rank 0's request, for all ranks: none must wait for one that has left.
            answer = self._meeting.agree(self.stop or "")
            self.stop = StopRequest(answer) if answer else None
        return self.stop is None

    def memory_exceeded(self) -> bool:
        """Whether the peak of this rank exceeds its limit."""
        limit = self.assignment.limits.memory_bytes
        return bool(limit is not None and self.memory and self.memory.bytes() > limit)

    def check_memory(self) -> None:
        """Raise TrialFailure if the peak exceeds the limit, see `memory_exceeded`."""
        if self.memory_exceeded():
            limit = self.assignment.limits.memory_bytes or 0
            raise TrialFailure(
                "out_of_memory",
                f"it has used {self.memory.bytes() / 1e9:.2f} GB, and a rank may use "
                f"{limit / 1e9:.2f} GB (resources.memory)",
            )
