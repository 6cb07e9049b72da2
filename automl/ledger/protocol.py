"""The ledger as a controller sees it. `Ledger` is in a database, `MemoryLedger` in memory."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from automl.core import Command, Snapshot, SweepEvent, SweepSpec, Trial
from workers.files.folder import Folder


class SweepRecorder(Protocol):
    """The writing side of one sweep, for the one controller that holds it.

    Attributes:
        trials: every trial by number; the list grows and its items are replaced as events come.
        seconds: wall-clock seconds of the sweep, as they were last committed.
    """

    trials: list[Trial]
    seconds: float

    @property
    def uncommitted(self) -> int:
        """Number of events that wait for a commit."""

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes nothing."""

    def commit(
        self,
        seconds: float | None = None,
        *,
        state: str | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> bool:
        """Store the applied events; True if somebody asked the sweep to stop."""

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began, in seconds of the sweep."""

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store, which all its users share."""

    def absence(self, until: float) -> float:
        """For how long nobody held the sweep before it was taken, up to `until` on that clock."""

    def look(self) -> bool:
        """Look for new commands; True if somebody asked the sweep to stop. It takes no lock."""

    def new_commands(self, *, refresh: bool = False) -> list[tuple[int, Command]]:
        """Commands that were not returned before: identity and command, in order."""

    def executed_commands(self) -> set[int]:
        """Identities of the commands that have become trials or were answered."""


class SweepLedger(Protocol):
    """A store of sweeps."""

    def close(self) -> None:
        """Release every held sweep."""

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep and return its name."""

    def spec(self, sweep: str) -> SweepSpec:
        """The specification of a sweep."""

    def replace_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Store another spec for a sweep."""

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every recorded event except reports, in order."""

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs."""

    def acquire(self, sweep: str) -> SweepRecorder:
        """Hold a sweep for writing."""

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
