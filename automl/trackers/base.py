"""The interface of a tracker, and what writes a running sweep to trackers.

Each has a thread of its own, which no trial waits for.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

from automl.core import Snapshot, SweepSpec, Trial
from automl.errors import UsageError, needs

from . import TRACKERS

if TYPE_CHECKING:
    from automl.ledger import Ledger

EVERY_SECONDS: Final = 1.0  # between two looks at what is new: many reports are written together
IDLE_SECONDS: Final = 30.0  # without progress, after which the end of a sweep waits no longer
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedSweep:
    """The sweep that a tracker writes.

    Args:
        name: of the sweep.
        created: when, in seconds since 1970; with the name, it tells sweeps apart.
    """

    name: str
    created: float

    @classmethod
    def of(cls, ledger: Ledger, name: str) -> TrackedSweep:
        """A sweep that the ledger has."""
        created = next(info.created for info in ledger.sweeps() if info.name == name)
        return cls(name, created)

    @property
    def id(self) -> str:
        """The same text whenever this sweep goes on, and another for any other sweep."""
        return f"{self.name}-{round(self.created * 1000)}"


class Tracker(ABC):
    """Writes the trials of one sweep to another tool: a run for each, in a group for the sweep.

    All methods are called in one thread, which need not be the controller's. Any of them may raise
    anything: the caller calls it again later, or says what has failed.

    Attributes:
        name: of the tool.
        module: that the tool needs; `automl-sweep[NAME]` installs it.
    """

    name: ClassVar[str]
    module: ClassVar[str]

    @abstractmethod
    def open(self, sweep: TrackedSweep) -> None:
        """Begin to write a sweep, or go on with it; called before all else."""

    @abstractmethod
    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Write what is new of a trial that has begun.

        Args:
            trial: with all of its reports; called again each time it has changed.
            snapshot: of the sweep, in which the trial may be newer already.
        """

    @abstractmethod
    def close(self, snapshot: Snapshot) -> None:
        """Write how the sweep has ended. Another process may go on with it later."""


def check_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """The names of trackers in their standard spelling, each once.

    Raises:
        UsageError: a tracker is unknown, or its tool is not installed.
    """
    found = tuple(dict.fromkeys(TRACKERS.require(name) for name in names))
    for name in found:
        package = TRACKERS.get(name).module.partition(".")[0]
        if find_spec(package) is None:
            raise UsageError(needs(f"the tracker {name!r}", package, name))
    return found


class LiveTracker:
    """Writes one sweep with one tracker, in a thread.

    What waits to be written is the newest state of each trial that has changed, never more. A
    failure is one warning; the trials concerned are tried again.

    Args:
        tracker: used in the thread alone.
        sweep: that it writes.
        idle_seconds: see the constant.
    """

    def __init__(
        self,
        tracker: Tracker,
        sweep: TrackedSweep,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._tracker = tracker
        self._sweep = sweep
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._waiting: dict[int, Trial] = {}
        self._snapshot: Snapshot | None = None
        self._opened = False
        self._warned = False
        self._moved = time.monotonic()  # when something was written last
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"automl-{tracker.name}", daemon=True
        )
        self._thread.start()

    def update(self, snapshot: Snapshot) -> None:
        """Note what has changed, the first time every trial that has begun; returns at once."""
        with self._lock:
            changed = snapshot.trials if self._snapshot is None else snapshot.changed
            self._waiting |= {trial.number: trial for trial in changed if trial.attempts}
            self._snapshot = snapshot

    def close(self) -> None:
        """Write what is left, while that makes progress; Ctrl-C ends the wait."""
        name = self._tracker.name
        self._moved = time.monotonic()
        self._closing.set()
        with suppress(KeyboardInterrupt):
            while self._thread.is_alive() and time.monotonic() - self._moved < self._idle_seconds:
                self._thread.join(0.1)
        if self._waiting or self._thread.is_alive():
            _LOG.warning(
                "%s lacks trials of the sweep %s; they are in its store", name, self._sweep.name
            )

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(EVERY_SECONDS)
            with self._lock:
                taken, self._waiting = self._waiting, {}
                snapshot = self._snapshot
            if snapshot is None:
                continue
            if not self._opened:
                self._opened = self._try(self._tracker.open, self._sweep)
            failed = {
                number: trial
                for number, trial in taken.items()
                if not (self._opened and self._try(self._tracker.write, trial, snapshot))
            }
            with self._lock:
                self._waiting = failed | self._waiting  # newer states win
            if closing and not self._waiting:
                self._try(self._tracker.close, snapshot)

    def _try(self, action: Callable[..., None], *given: Any) -> bool:
        try:
            action(*given)
        except Exception as error:  # of any kind, from the tool
            if not self._warned:
                self._warned = True
                _LOG.warning(
                    "%s fails; the sweep goes on, and what is missing is tried again: %s: %.300s",
                    *(self._tracker.name, type(error).__name__, " ".join(str(error).split())),
                )
            return False
        self._moved = time.monotonic()
        return True


@contextmanager
def tracked(
    spec: SweepSpec,
    ledger: Ledger,
    on_change: Callable[[Snapshot], None] | None,
    trackers: Sequence[str | Tracker] = (),
) -> Iterator[Callable[[Snapshot], None] | None]:
    """`on_change`, which also passes to trackers each trial that has changed.

    Args:
        spec: of a sweep that the ledger has; it names trackers.
        trackers: further ones; names here are those of the spec, and are passed over.

    Raises:
        UsageError: a tracker is unknown, or its tool is not installed.
    """
    made = [TRACKERS.get(name)() for name in check_trackers(spec.trackers)]
    made += [tracker for tracker in trackers if isinstance(tracker, Tracker)]
    if not made:
        yield on_change
        return
    sweep = TrackedSweep.of(ledger, spec.name)
    live = [LiveTracker(tracker, sweep) for tracker in made]

    def watch(snapshot: Snapshot) -> None:
        for tracker in live:
            tracker.update(snapshot)
        if on_change is not None:
            on_change(snapshot)

    try:
        yield watch
    finally:
        for tracker in live:
            tracker.close()
