"""The ledger as a controller sees it. `Ledger` is in a database, `MemoryLedger` in memory."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from automl.core import Command, Snapshot, SweepEvent, SweepSpec, SweepState, Trial
from workers.files.folder import Folder


class LogRecord(NamedTuple):
    """An event of a sweep's log.

    Args:
        number: from 1, without gaps.
        recorded: seconds since 1970 on the clock of the store.
    """

    number: int
    recorded: float
    event: SweepEvent


class SweepRecorder(Protocol):
    """The writing side of one sweep, for the one process that holds it. Used from one thread.

    Attributes:
        state: of the sweep, with the events that were applied and those that others have recorded.
        taken: number of the last record when the sweep was taken.
        seconds: wall-clock seconds of the sweep, as they were last committed.
        earlier_state: of the sweep before it was taken, as people saw it.
    """

    state: SweepState
    taken: int
    seconds: float
    earlier_state: str

    @property
    def uncommitted(self) -> int:
        """Number of events that wait for a commit."""

    def apply(self, event: SweepEvent) -> Trial | None:
        """Queue an event for the next commit; the trial after it, None if it changes none.

        An event that changes nothing about its trial (a duplicate, or late) is not queued.
        """

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Append the queued events, renew the lease, and take in what others have recorded.

        Act on an event only after its commit.

        Raises:
            StoreError: the store cannot be written to, or another process has taken the sweep
                over. The events stay queued.
        """

    def look(self) -> None:
        """Take in what others have recorded since. It takes no lock."""

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store, which all its users share."""

    def absence(self, until: float) -> float:
        """For how long nobody held the sweep before it was taken, up to `until` on that clock."""


class SweepLedger(Protocol):
    """A store of sweeps."""

    def close(self) -> None:
        """Release every held sweep."""

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep and return its name."""

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""

    def change_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Go on with another specification; needs no lease."""

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every recorded event, in order."""

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs."""

    def send(self, sweep: str, *commands: Command) -> list[int]:
        """Record commands to the sweep; returns their numbers."""

    def acquire(self, sweep: str) -> SweepRecorder:
        """Hold a sweep for writing."""

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
