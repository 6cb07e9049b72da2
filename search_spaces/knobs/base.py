"""The base class of every knob: ready-made parameters, fitted to the hardware."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from search_spaces.errors import SpaceError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest

from .option import DroppedValue, Option


@dataclass
class KnobSpace:
    """A knob on some hardware: its parameters, their constraints, and the dropped values."""

    parameters: list[Parameter] = field(default_factory=list)
    dropped: list[DroppedValue] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)


class Knob:
    """A group of options that is tuned together; a knob is stateless and deterministic.

    A knob is one file of this folder. It names its `options`, the `conditions` under which an
    option is active (values of other parameters), `constraints` between its options, and those
    `across` it and other knobs, for options on request. It overrides `lacks` if the
    hardware cannot run every value, or `declare` if more depends on it. It overrides `applied` or
    `change` if it acts by itself; otherwise the trainer or the workload reads its options. Set
    `automatic` to add it to the space of every workload that the trainer trains. Options that are
    `on_request` act in each of these workloads; if its space leaves one out, a configuration can
    still name it.

    Adjustments come from a workload or a configuration, as plain data. The name of an option
    adjusts its parameter. False leaves it out, a list gives the choices, and a mapping gives any of
    `low, high, log, choices, ordered, default, when, affects`. `defaults` maps names of options to
    the defaults of a workload, which take the place of the declared ones. `keys` are further
    adjustments, described in the docstring of the knob. Any other key is refused.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    conditions: ClassVar[Mapping[str, Mapping[str, tuple[Value, ...]]]] = {}
    constraints: ClassVar[tuple[str, ...]] = ()
    across: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    automatic: ClassVar[bool] = False
    on_request: ClassVar[tuple[Option, ...]] = ()

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """A parameter for each option of which two values can run, and the `constraints`.

        Args:
            adjustments: their keys are known.

        Raises:
            SpaceError: an adjustment is malformed, or the hardware can run no value that is left.
        """
        found = KnobSpace()
        for option in self.options:
            reasons = self.lacks(option, hardware)
            when: dict[str, Any] = {"when": w} if (w := self.conditions.get(option.name)) else {}
            kept = None
            if reasons:
                kept, dropped = option.split(option.wanted(adjustments), reasons)
                found.dropped += dropped
            parameter = option.build(adjustments, kept, **when)
            found.dropped += option.not_named(parameter, reasons)
            if parameter is not None and (kept is None or len(kept) > 1):
                found.parameters.append(parameter)
        names = {parameter.name for parameter in found.parameters}
        holding = [text for text in self.constraints if names.issuperset(Expression(text).names)]
        found.constraints += holding
        return found

    def lacks(self, option: Option, hardware: Hardware) -> Mapping[Value, str]:
        """The values of an option that this hardware cannot run, each with the reason."""
        return {}

    def applied(self, values: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """The context in which the trainer trains under these values; by default it does nothing.

        Args:
            values: of every option of the trial, by name; read one with `Option.value`.
        """
        return nullcontext()

    def change(self, model: Any, values: Mapping[str, Any]) -> None:
        """Change a model in place before it is trained; by default it stays as it is.

        Args:
            model: a `torch.nn.Module` with the names and the parameters that it must keep; it may
                have no memory yet.
            values: of every option of the trial, by name.
        """

    def resolve(
        self, hardware: Hardware, adjustments: Mapping[str, Any] | None = None
    ) -> KnobSpace:
        """Parameters, constraints and the values that are left out.

        Raises:
            SpaceError: an adjustment is unknown or malformed, or no value is left that the hardware
                can run.
        """
        known = [*(option.name for option in self.options), *self.keys]
        given = dict(adjustments or {})
        for key in given:
            if key not in (*known, "defaults"):
                raise SpaceError(f"knob {self.name!r} has no option {key!r}: {nearest(key, known)}")
        return self.declare(hardware, given)


def present(parameters: Iterable[Parameter | None]) -> list[Parameter]:
    """The parameters that are not None."""
    return [parameter for parameter in parameters if parameter is not None]
