"""The interface of a tracker."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from automl.core import Snapshot, Trial
from automl.errors import UsageError, needs

from . import TRACKERS

if TYPE_CHECKING:
    from automl.ledger import Ledger


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
    def of(cls, ledger: "Ledger", name: str) -> "TrackedSweep":
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
