"""An option declared once: domain, default and help, for knobs, trainer, workloads and docs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from search_spaces.errors import SpaceError, UsageError
from search_spaces.parameters import ALL, Choice, Float, Int, Parameter, Value

COMPUTES_THE_SAME: Final = frozenset({"speed", "memory"})
CHANGES_THE_RESULT: Final = frozenset({"quality"})

ON_REQUEST: Final = "is tried only if the space names it"

_ADJUSTABLE = ("low", "high", "log", "choices", "ordered", "default", "when", "affects")
_SAME_AS_DEFAULT: Final = object()


@dataclass(frozen=True)
class DroppedValue:
    """A value that a knob leaves out: `parameter` is the name, `reason` says why, for a person."""

    parameter: str
    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.parameter} {self.value!r}: {self.reason}"


@dataclass(frozen=True)
class Option:
    """One option: the only statement of its domain, its default and its help.

    A knob builds a parameter from it. The code that reads the option takes its default from here.
    `make docs` lists it in docs/internals/knobs.md.

    Args:
        name: the key in `space:` and `fixed:`.
        help: one line for people.
        default: the value of trial 0 if the option is tuned.
        choices: the values that can be tuned; empty for a range.
        ordered: whether the choices have an order.
        low, high, log: the range that can be tuned, if there are no choices.
        affects: the aspects of a trial that the option can change.
        on_request: further values, which are tuned only if a configuration names them.
        untuned: further values that can be fixed, but are not tuned.
        unset: the value if the option is neither tuned nor fixed; `default` if omitted.
    """

    name: str
    help: str
    default: Any
    choices: tuple[Any, ...] = ()
    ordered: bool = False
    low: float | None = None
    high: float | None = None
    log: bool = False
    affects: frozenset[str] = ALL
    on_request: tuple[Any, ...] = ()
    untuned: tuple[Any, ...] = ()
    unset: Any = _SAME_AS_DEFAULT

    def __post_init__(self) -> None:
        if self.unset is _SAME_AS_DEFAULT:
            object.__setattr__(self, "unset", self.default)

    def value(self, options: Mapping[str, Any]) -> Any:
        """The value in `options`, or `unset` if it is not there; raises as `checked`."""
        return self.checked(options.get(self.name, self.unset))

    def checked(self, value: Any) -> Any:
        """The same value; UsageError if it is a word that is none of the choices."""
        known = (*self.choices, *self.on_request, *self.untuned)
        if self.choices and isinstance(value, str) and value not in known:
            words = ", ".join(map(str, known))
            raise UsageError(f"{self.name} is one of {words}, got {value!r}")
        return value

    def build(
        self, adjustments: Mapping[str, Any], kept: Sequence[Value] | None = None, **declared: Any
    ) -> Parameter | None:
        """The parameter as `adjustments[name]` changes it (see `Knob`); None if that is False.

        Args:
            adjustments: of the knob.
            kept: the choices that remain, whatever the adjustments ask for.
            declared: arguments of the parameter that take the place of those declared here.

        Raises:
            SpaceError: the adjustment is malformed.
        """
        given = adjustments.get(self.name, True)
        if given is False or given is None:
            return None
        change = self._change(given)
        arguments: dict[str, Any] = {"affects": self.affects, **declared}
        if kept is not None:
            change["choices"] = kept
        if "choices" in change or (self.choices and "low" not in change):
            kind: type[Parameter] = Choice
            arguments |= {"choices": self.choices, "ordered": self.ordered}
        else:
            arguments |= {"low": self.low, "high": self.high, "log": self.log}
            bounds = (change.get("low", self.low), change.get("high", self.high))
            kind = Int if all(isinstance(bound, int) for bound in bounds) else Float
        known = {*arguments, "default", "when"}
        arguments |= {key: value for key, value in change.items() if key in known}
        if "default" not in change:
            workload_defaults: Mapping[str, Any] = adjustments.get("defaults", {})
            default = workload_defaults.get(self.name)
            arguments["default"] = _nearest_legal(
                declared.get("default", self.default) if default is None else default, arguments
            )
        return kind(self.name, **arguments)

    def wanted(
        self, adjustments: Mapping[str, Any], declared: Sequence[Value] | None = None
    ) -> list[Value]:
        """The choices that the adjustments ask for, or else the declared ones."""
        given = adjustments.get(self.name, True)
        if isinstance(given, Mapping):
            given = given.get("choices", True)
        if isinstance(given, list | tuple):
            return list(given)
        return list(self.choices if declared is None else declared)

    def split(
        self, choices: Sequence[Value], reasons: Mapping[Any, str], knob: str = ""
    ) -> tuple[list[Value], list[DroppedValue]]:
        """Split choices into those to keep and those that `reasons` names.

        Raises:
            SpaceError: there is none to keep, and the `knob` cannot do without.
        """
        dropped = [DroppedValue(self.name, c, reasons[c]) for c in choices if c in reasons]
        kept = [c for c in choices if c not in reasons]
        if knob and not kept:
            why = "; ".join(map(str, dropped)) or "no choice was given"
            raise SpaceError(f"knob {knob!r} has no value left that this machine can run: {why}")
        return kept, dropped

    def not_named(
        self, parameter: Parameter | None, reasons: Mapping[Any, str] | None = None
    ) -> list[DroppedValue]:
        """The values on request that a parameter has not.

        Args:
            reasons: why the hardware cannot run values.
        """
        if parameter is None:
            return []
        lacking = reasons or {}
        return [
            DroppedValue(self.name, value, lacking.get(value, ON_REQUEST))
            for value in self.on_request
            if not parameter.legal(value)
        ]

    def _change(self, given: Any) -> dict[str, Any]:
        if given is True:
            return {}
        if isinstance(given, list | tuple):
            return {"choices": given}
        if not isinstance(given, Mapping):
            raise SpaceError(
                f"{self.name} is adjusted by False, a list of choices or a mapping, got {given!r}"
            )
        for key in given:
            if key not in _ADJUSTABLE:
                raise SpaceError(
                    f"{self.name} can be adjusted in {', '.join(_ADJUSTABLE)}; got {key!r}"
                )
        return dict(given)


def _nearest_legal(default: Any, arguments: Mapping[str, Any]) -> Any:
    """The value nearest to the default that the parameter has."""
    if "choices" not in arguments:
        return min(max(default, arguments["low"]), arguments["high"])
    choices = list(arguments["choices"])
    if default in choices or not choices:
        return default
    numbers = [c for c in choices if isinstance(c, int | float) and not isinstance(c, bool)]
    if numbers and isinstance(default, int | float) and not isinstance(default, bool):
        return min(numbers, key=lambda c: abs(c - default))
    return choices[0]
