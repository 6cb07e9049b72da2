"""The face of every knob: ready-made parameters that drop what this hardware cannot run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest


@dataclass(frozen=True)
class Dropped:
    """A value that a knob left out: `parameter` is the name, `reason` says why, for a person."""

    parameter: str
    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.parameter} {self.value!r}: {self.reason}"


@dataclass
class Declared:
    """What a knob comes to on some hardware: parameters, the constraints between them, and what was left out."""

    parameters: list[Parameter] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)


class Knob(ABC):
    """Builds parameters from the hardware and from what a workload and its strategies declare, given as plain data.

    A knob is stateless and deterministic. `keys` are the options that it reads, described in its docstring; any
    other is refused, so that a misspelt one is noticed. An option that bears the name of one of the knob's
    parameters adjusts that parameter: False leaves it out, a list gives its choices, and a mapping any of
    `low, high, log, choices, ordered, default, when, affects`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """The one method that a knob writes; its options have known names.

        Raises:
            SpaceError: an option is malformed, or no value is left that the hardware can run.
        """

    def resolve(self, hardware: Hardware, options: Mapping[str, Any] | None = None) -> Declared:
        """Parameters, constraints and what was left out, in one go.

        Raises:
            SpaceError: an option is unknown or malformed, or no value is left that the hardware can run.
        """
        given = dict(options or {})
        for key in given:
            if key not in self.keys:
                raise SpaceError(
                    f"knob {self.name!r} has no option {key!r}: {nearest(key, list(self.keys))}"
                )
        return self.declare(hardware, given)

    def parameters(
        self, hardware: Hardware, options: Mapping[str, Any] | None = None
    ) -> list[Parameter]:
        """The parameters of this knob, with the values that this hardware can run; raises as `resolve`."""
        return self.resolve(hardware, options).parameters

    def dropped(
        self, hardware: Hardware, options: Mapping[str, Any] | None = None
    ) -> list[Dropped]:
        """The values that `parameters` leaves out on this hardware, each with the reason; raises as `resolve`."""
        return self.resolve(hardware, options).dropped

    def constraints(
        self, hardware: Hardware, options: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Constraints that belong to the parameters; raises as `resolve`."""
        return self.resolve(hardware, options).constraints
