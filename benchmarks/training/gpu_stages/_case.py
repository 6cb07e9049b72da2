"""What a stage of the GPU benchmark is: its cases, how one is measured, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from benchmarks.common.bounds import Claim

Row = dict[str, Any]
Rows = Mapping[str, Row]  # of one stage, by the name of the case
T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The device that is measured.

    Args:
        device: as torch calls it.
        tiny: whether models and data are so small that a CPU computes them at once. The figures
            then mean nothing: it shows that the script works.
    """

    device: str = "cuda:0"
    tiny: bool = False

    @property
    def cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.device.startswith("cuda")

    @property
    def gpus(self) -> float:
        """GPUs of a rank."""
        return 1.0 if self.cuda else 0.0

    def size(self, real: T, tiny: T) -> T:
        """The one or the other size."""
        return tiny if self.tiny else real


@dataclass(frozen=True)
class Case:
    """One measurement.

    Args:
        name: unique in its stage.
        settings: what the stage must know, as JSON data.
        process: cases of one name share a process.
        seconds: after so many, the case has failed.
        quick: whether `--quick` measures it.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    process: str = ""
    seconds: float = 120.0
    quick: bool = False


@dataclass(frozen=True)
class Stage:
    """Cases that are measured in at most nine minutes.

    Args:
        summary: what it measures, in a line.
        cases: from the target and the rows of earlier stages, by name of the stage.
        measure: one case, in a process of its own; returns JSON data. An exception is a failure.
        claims: what must hold of the rows that were measured without failure.
        line: the figures of a row, for a person.
    """

    summary: str
    cases: Callable[[Target, Mapping[str, Rows]], list[Case]]
    measure: Callable[[Target, Case], Row]
    claims: Callable[[Rows], list[Claim]]
    line: Callable[[Row], str]


def label(settings: Mapping[str, Any]) -> str:
    """Settings as a name."""
    return " ".join(f"{key}={value}" for key, value in settings.items())
