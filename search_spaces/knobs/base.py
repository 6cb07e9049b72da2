"""The face of every knob: ready-made parameters that drop what this hardware cannot run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value


@dataclass(frozen=True)
class Dropped:
    """A value that a knob left out: `parameter` is the name, `reason` says why, for a person."""

    parameter: str
    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.parameter} {self.value!r}: {self.reason}"


class Knob(ABC):
    """Builds parameters from the hardware and from what a workload and its strategies declare.

    A knob is stateless. `options` is plain data; each knob's docstring lists the keys that it reads, and unknown
    keys are refused, so that a misspelt one is noticed. Every knob takes `when` and, where it has a list of choices,
    `choices`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def parameters(self, hardware: Hardware, options: Mapping[str, Any] | None = None) -> list[Parameter]:
        """The parameters of this knob that this hardware can run; none where no value is left to choose.

        Raises:
            SpaceError: an option is unknown or malformed, or no value is left that the hardware can run.
        """

    def dropped(self, hardware: Hardware, options: Mapping[str, Any] | None = None) -> list[Dropped]:
        """The values that `parameters` leaves out on this hardware, each with the reason."""
        return []

    def constraints(self, hardware: Hardware, options: Mapping[str, Any] | None = None) -> list[str]:
        """Constraints that belong to the parameters, as texts."""
        return []

    def options(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """The options as a dict; raises SpaceError where one is unknown."""
        options = dict(given or {})
        for key in options:
            if key not in self.keys:
                raise SpaceError(f"knob {self.name!r} knows no option {key!r}; known: {', '.join(self.keys) or 'none'}")
        return options


def keep(
    knob: str, parameter: str, choices: Sequence[Value], reasons: Mapping[Value, str]
) -> tuple[list[Value], list[Dropped]]:
    """Part choices into those to keep and those that `reasons` names.

    Raises:
        SpaceError: nothing is left.
    """
    dropped = [Dropped(parameter, choice, reasons[choice]) for choice in choices if choice in reasons]
    kept = [choice for choice in choices if choice not in reasons]
    if not kept:
        why = "; ".join(map(str, dropped)) or "no choice was given"
        raise SpaceError(f"knob {knob!r} has no value left that this machine can run: {why}")
    return kept, dropped
