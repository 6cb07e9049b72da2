"""Options and knobs: ready-made parameters, fitted to the hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self, cast

from search_spaces.errors import UsageError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.parameters import ALL, Choice, Float, Int, Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.values import check, checked_when

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
        requires: values of other parameters, by name, under which the option is active. The knob
            leaves the option out if another option of the knob has none of these values.
        needed: whether the option stays in the space if a single value is left; then it is an
            error if none is left.
        on_request: further values, which are tuned only if a configuration names them.
        untuned: further values that can be fixed, but are not tuned.
        unset: the value if the option is neither tuned nor fixed; `default` if omitted.
        named: whether adjustments name the choices.
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
    requires: Mapping[str, tuple[Value, ...]] = field(default_factory=dict, hash=False)
    needed: bool = False
    on_request: tuple[Any, ...] = ()
    untuned: tuple[Any, ...] = ()
    unset: Any = _SAME_AS_DEFAULT
    named: bool = False

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

    def adjusted(self, adjustments: Mapping[str, Any]) -> Option | None:
        """The option as `adjustments[name]` changes it (see `Knob`); None if that is False.

        Raises:
            SpaceError: the adjustment is malformed.
        """
        given = adjustments.get(self.name, True)
        if given in (False, None):
            return None
        change = {} if given is True else given
        change = {"choices": given} if isinstance(given, list | tuple) else change
        check(
            isinstance(change, Mapping) and set(change) <= set(_ADJUSTABLE),
            f"{self.name} is adjusted by False, a list of choices or a mapping with any of "
            f"{', '.join(_ADJUSTABLE)}; got {given!r}",
        )
        choices = change.get("choices", () if "low" in change else self.choices)
        of_workload = adjustments.get("defaults", {}).get(self.name)
        fields = {
            "default": self.default if of_workload is None else of_workload,
            **change,
            "choices": tuple(choices),
            "requires": checked_when(self.name, change.get("when", self.requires)),
            "named": "choices" in change,
        }
        return replace(self, **{key: value for key, value in fields.items() if key != "when"})

    def build(self, when: Mapping[str, Any] | None = None) -> Parameter:
        """The parameter, active under the condition; its default is the nearest that it has."""
        common: dict[str, Any] = {"when": when, "affects": self.affects}
        if self.choices or self.low is None or self.high is None:
            common["default"] = nearest_choice(self.default, self.choices)
            return Choice(self.name, self.choices, ordered=self.ordered, **common)
        common["default"] = min(max(self.default, self.low), self.high)
        is_int = isinstance(self.low, int) and isinstance(self.high, int)
        return (Int if is_int else Float)(self.name, self.low, self.high, log=self.log, **common)

    def split(self, reasons: Mapping[Any, str]) -> tuple[tuple[Any, ...], list[DroppedValue]]:
        """The choices to keep, and those that `reasons` names.

        Raises:
            SpaceError: the option is needed, and there is none to keep.
        """
        dropped = [DroppedValue(self.name, c, reasons[c]) for c in self.choices if c in reasons]
        kept = tuple(c for c in self.choices if c not in reasons)
        why = "; ".join(map(str, dropped)) or "no choice was given"
        check(
            kept or not self.needed,
            f"knob {self.name!r} has no value left that this machine can run: {why}",
        )
        return kept, dropped


def nearest_choice(default: Any, choices: Sequence[Value]) -> Any:
    """The default, or else the choice that is nearest to it."""
    if default in choices or not choices:
        return default
    numbers: list[Any] = [c for c in choices if type(c) in (int, float)]
    if type(default) not in (int, float) or not numbers:
        return choices[0]
    return min(numbers, key=lambda c: abs(c - default))


@dataclass
class KnobSpace:
    """A knob on some hardware: its parameters, their constraints, and the dropped values."""

    parameters: list[Parameter] = field(default_factory=list)
    dropped: list[DroppedValue] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)


class Knob:
    """A group of options that is tuned together; a knob is stateless and deterministic.

    A knob is a row of `search_spaces.knobs.table`, or a file of this folder if it has code of its
    own. It names its `options`, and `constraints` between these and the options of other knobs,
    each of which holds if all its parameters are tuned. It overrides `lacks` if the hardware cannot
    run every value, `fit` if an option depends on the hardware otherwise, or `declare` if more
    does. It overrides `applied` or `change` if it acts by itself; otherwise the trainer or the
    workload reads its options. Set `automatic` to add it to the space of every workload that the
    trainer trains. Options that are `on_request` act in each of these workloads; if its space
    leaves one out, a configuration can still name it.

    Adjustments come from a workload or a configuration, as plain data. The name of an option
    adjusts its parameter. False leaves it out, a list gives the choices, and a mapping gives any of
    `low, high, log, choices, ordered, default, when, affects`. `defaults` maps names of options to
    the defaults of a workload, which take the place of the declared ones. `keys` are further
    adjustments, described in the docstring of the knob. Any other key is refused.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    constraints: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    automatic: ClassVar[bool] = False
    on_request: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def row(cls, name: str, summary: str, *options: Option, **more: Any) -> type[Self]:
        """A knob that has no code of its own; `more` are further class attributes."""
        members = {"name": name, "summary": summary, "options": options, **more}
        return cast(type[Self], type(f"{name.title()}Knob", (cls,), members))

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """A parameter for each option of which two values can run, and the `constraints`.

        An option of which one value can run is there if the adjustments name its values.

        Args:
            adjustments: their keys are known.

        Raises:
            SpaceError: an adjustment is malformed, or the hardware can run no value that is left.
        """
        found = KnobSpace()
        tuned: dict[str, Parameter] = {}
        for declared in self.options:
            option = self.fit(declared, hardware, adjustments).adjusted(adjustments)
            when = self._condition(option, tuned) if option else None
            if option is None or when is None:
                continue
            reasons = self.lacks(option, hardware, adjustments)
            kept, dropped = option.split(reasons)
            if kept or not option.choices:
                dropped += [
                    DroppedValue(option.name, value, reasons.get(value, ON_REQUEST))
                    for value in option.on_request
                    if value not in option.choices
                ]
                if len(kept) != 1 or option.needed or option.named:
                    tuned[option.name] = replace(option, choices=kept).build(when)
            found.dropped += dropped
        found.parameters = list(tuned.values())
        found.constraints = [t for t in self.constraints if tuned.keys() >= {*Expression(t).names}]
        return found

    def _condition(self, option: Option, tuned: Mapping[str, Parameter]) -> dict[str, Any] | None:
        """The condition of an option, given the knob's tuned parameters; None if it never holds."""
        when: dict[str, Any] = {}
        for parent, values in option.requires.items():
            if parent in tuned:
                when[parent] = tuple(value for value in values if tuned[parent].legal(value))
            elif parent not in [other.name for other in self.options]:
                when[parent] = values
        return when if all(when.values()) else None

    def fit(self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]) -> Option:
        """The option on this hardware; by default the same everywhere."""
        return option

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
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
        known = [*(option.name for option in self.options), *self.keys, "defaults"]
        for key in adjustments or ():
            hint = nearest(str(key), known[:-1])
            check(key in known, f"knob {self.name!r} has no option {key!r}: {hint}")
        return self.declare(hardware, adjustments or {})
