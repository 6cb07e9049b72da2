"""Resolves the space of a sweep from the configuration, the workload and the hardware.

An entry under `space:` has keys (`ENTRY_KEYS`). It and the declaration of the workload describe a
parameter together.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from automl.core import Constraint
from automl.core.arguments import WrongValue
from automl.core.key_kinds import FLAG, Key, Kind, listed, mapped, one_of, read_keys
from automl.errors import SpaceError, UsageError
from search_spaces import Choice, Float, Int, Space
from search_spaces.expressions import Expression, quoted
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.knobs.base import ON_REQUEST, DroppedValue, nearest_choice
from search_spaces.parameters import Parameter, Value, parameter_from_dict
from search_spaces.plugins import nearest
from search_spaces.values import among
from workers.own_loop import resolved
from workers.training import trainer_options
from workers.workload import Trainable, Workload

from .source import WrittenConfig, shown

MAX_TRIED = 4096
_TERMS: Final = re.compile(r"[+*%()]| [-/] ")  # of a sum or a product, not of a metric's name
ENTRY_RULE: Final = "a list of choices or {low, high, log, type, when, affects, default}"


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(name, "a number", value)
    return value


def _value(name: str, value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_value(name, item) for item in value)
    if isinstance(value, bool | int | float | str | None):
        return value
    raise WrongValue(name, "a number, text, true, false, null or a list of these", value)


def _values(name: str, value: Any) -> tuple[Value, ...]:
    return tuple(_value(name, item) for item in (value if isinstance(value, list) else [value]))


_NUMBER, _ANY = Kind("number", _number), Kind("value", _value)
_SEVERAL = Kind("list of values", _values)
ENTRY_KEYS: Final = {
    "low": Key(_NUMBER, "Least value.", "low: 1e-5", words="the workload's"),
    "high": Key(_NUMBER, "Largest value.", "high: 0.1", words="the workload's"),
    "log": Key(FLAG, "Whether the scale is logarithmic.", "log: true", words="`false`"),
    "step": Key(
        _NUMBER,
        "Distance of the values: low, low + step and so on.",
        "step: 16",
        words="1 for whole numbers",
    ),
    "type": Key(
        one_of("float", "int", "choice"),
        "Kind of the parameter.",
        "type: int",
        words="`int` if both bounds are whole numbers",
    ),
    "choices": Key(_SEVERAL, "Values to choose from.", "choices: [sgd, adam]"),
    "ordered": Key(
        FLAG, "Whether neighbours in the list are alike.", "ordered: true", words="true for numbers"
    ),
    "when": Key(
        mapped(_SEVERAL),
        "The parameter exists only if others have these values.",
        "when: {optimizer: sgd}",
        words="always",
    ),
    "affects": Key(
        listed(one_of("quality", "speed", "memory")),
        "What it can change, see "
        "[affects](../concepts/how-a-sweep-works.md#what-a-parameter-affects).",
        "affects: quality",
        words="all three",
    ),
    "default": Key(_ANY, "Its value in trial 0.", "default: 1e-3"),
}


_OF_NUMBERS: Final = ("low", "high", "log", "step")
_OF_CHOICES: Final = ("choices", "ordered")


def build(
    name: str,
    entry: Mapping[str, Any],
    base: Parameter | None,
    unavailable: Mapping[Value, str],
    slow: Sequence[Value] = (),
) -> Parameter:
    """The parameter that an entry describes.

    Args:
        name: of the parameter.
        entry: the keys that the configuration gives.
        base: declaration of the workload, which supplies the others; None if there is none.
        unavailable: values that this hardware cannot run, with the reason. They are left out.
        slow: values that are not declared because they run slowly. An entry may name them.

    Raises:
        SpaceError: the entry makes no valid parameter.
    """
    kind = _kind(name, entry, base)
    apart = _OF_NUMBERS if kind == "choice" else _OF_CHOICES
    if wrong := [key for key in apart if key in entry]:
        raise SpaceError(f"{name} is of type {kind}, which has no {wrong[0]!r}")
    declared = {} if base is None else base.to_dict()
    default = declared.pop("default", None)
    inherited = {key: value for key, value in declared.items() if key not in apart}
    data = {**inherited, **entry, "type": kind, "name": name}
    if kind == "choice":
        known = declared.get("choices", ())
        choices = data.get("choices", known)
        if base is not None:
            for value in choices:
                _check_kind(name, value, base, [*dict.fromkeys([*known, *unavailable, *slow])])
        data["choices"] = [value for value in choices if value not in unavailable]
        if choices and not data["choices"]:
            reasons = "; ".join(f"{value}: {unavailable[value]}" for value in choices)
            raise SpaceError(f"none of the choices of {name} can run on this hardware ({reasons})")
        numbers = all(map(_is_number, data["choices"]))
        data.setdefault("ordered", numbers and not isinstance(base, Choice))
    elif lacks := [bound for bound in ("low", "high") if bound not in data]:
        raise SpaceError(f"{name} needs {lacks[0]}")
    elif kind == "int":
        whole = ("low", "high", "step", "default")
        data |= {key: _whole(data[key]) for key in whole if key in data}
    if kind != "choice" and data.get("default", 0) is None:
        del data["default"]
    made = parameter_from_dict(data)
    if "default" in data or base is None or not base.has_default:
        return made
    nearest = nearest_choice(default, data["choices"]) if isinstance(made, Choice) else None
    if isinstance(made, Float | Int) and _is_number(default):
        nearest = made.nearest(default)
    return parameter_from_dict({**data, "default": nearest})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(name: str, entry: Mapping[str, Any], base: Parameter | None) -> str:
    bounds = [entry[key] for key in ("low", "high") if key in entry]
    if "type" in entry:
        return str(entry["type"])
    if "choices" in entry:
        return "choice"
    if base is not None and not (isinstance(base, Choice) and bounds):
        return base.kind
    if not bounds:
        raise SpaceError(f"{name} needs low and high, or choices")
    return "int" if all(isinstance(bound, int) for bound in bounds) else "float"


def _check_kind(name: str, value: Value, base: Parameter, known: Sequence[Value]) -> None:
    """Check a choice: a word must be a declared one, a number may be any."""
    if not isinstance(base, Float | Int) and any(isinstance(one, str | bool) for one in known):
        fits = any(one == value and type(one) is type(value) for one in known)
        rule = f"one of {', '.join(map(str, known))}"
    else:
        whole = isinstance(base, Int)
        fits = _is_number(value) and (isinstance(value, int) or not whole)
        rule = "a whole number" if whole else "a number"
    if not fits:
        raise SpaceError(f"each choice of {name} must be {rule}, got {shown(value)}")


@dataclass(frozen=True)
class Tunable:
    """The parameters and options that `space:` and `fixed:` can name on this hardware.

    Args:
        detected: gives the hardware of this machine. Detecting it takes seconds, so it is asked
            for only if something depends on it.
        workload: its name; None for an objective of the user.
        parameters: declared by the workload.
        constraints: of the workload's space.
        defaults: options of the workload that are not tuned by default.
        left_out: by parameter, the values that this hardware cannot run, or that are tried only if
            they are named, with the reason.
        on_request: parameters that are tuned only if the configuration names them.
        further: constraints that hold if one of these is named.
    """

    detected: Callable[[], Hardware]
    workload: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[Value, str]] = field(default_factory=dict)
    on_request: Mapping[str, Parameter] = field(default_factory=dict)
    further: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, workload: type[Workload] | None, detected: Callable[[], Hardware]) -> Tunable:
        """What a workload declares; the knobs alone for None."""
        if workload is None:
            return cls(detected)
        hardware = detected()
        space = workload.space(hardware)
        more = workload.on_request(hardware)
        left_out: dict[str, dict[Value, str]] = {}
        for dropped in (*more.dropped, *workload.dropped(hardware)):
            left_out.setdefault(dropped.parameter, {})[dropped.value] = dropped.reason
        common = trainer_options() if issubclass(workload, Trainable) else {}
        defaults = {**common, **workload.defaults}
        return cls(
            detected,
            workload.name,
            space.parameters,
            space.constraints,
            defaults,
            left_out,
            {parameter.name: parameter for parameter in more.parameters},
            tuple(map(Expression, more.constraints)),
        )

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name, if it is declared."""
        return self.parameters.get(name) or self.on_request.get(name)

    def group(self, name: str) -> dict[str, Parameter]:
        """The parameter of that name, or those of the knob of that name; empty if it is unknown."""
        if (parameter := self.parameter(name)) is not None:
            return {name: parameter}
        if self.workload is None:
            with suppress(UsageError):
                return resolved([name], {}, self.detected)
            return {}
        if name not in KNOBS.names():
            return {}
        knob = {
            found.name: found for found in KNOBS.get(name)().resolve(self.detected()).parameters
        }
        tuned = {key: self.parameters[key] for key in knob if key in self.parameters}
        return tuned or {key: self.on_request[key] for key in knob if key in self.on_request}

    def names(self) -> list[str]:
        """Every name that can be tuned."""
        return [*self.parameters, *self.on_request] if self.workload else KNOBS.names()

    def unavailable(self, name: str, *, explicit: bool = False) -> dict[Value, str]:
        """The values of a parameter that this hardware cannot run, with the reason.

        Args:
            explicit: the user wrote the values down. Then slow ones are allowed, and those that
                are tried only if they are named.
        """
        if self.workload is not None or name not in KNOBS.names():
            found = dict(self.left_out.get(name, {}))
        else:
            dropped = KNOBS.get(name)().resolve(self.detected()).dropped
            found = {item.value: item.reason for item in dropped if item.parameter == name}
        if not found:
            return {}
        slow = self.detected().slow
        return {
            value: reason
            for value, reason in found.items()
            if not (explicit and reason in (slow.get(str(value)), ON_REQUEST))
        }

    def gone(self, name: str) -> str | None:
        """Why this hardware cannot run a parameter of the workload at all; None otherwise."""
        if self.parameter(name) is not None or name not in self.left_out:
            return None
        return "; ".join(f"{value}: {reason}" for value, reason in self.left_out[name].items())

    def refuse_fixed(self, name: str, value: Any) -> str | None:
        """Why a value under `fixed:` is wrong, or None. A number may be outside the tuned range."""
        if self.workload is None:
            wanted = f"space.{name}: [{shown(value)}]"
            return f"only a workload has fixed options; write {wanted}, or give it to the program"
        named = (*self.parameters, *self.on_request, *self.defaults, *self.left_out)
        known = list(dict.fromkeys(named))
        if name not in known:
            return f"unknown option of workload {self.workload}; {nearest(name, known)}"
        unavailable = self.unavailable(name, explicit=True)
        if isinstance(value, bool | int | float | str) and value in unavailable:
            return f"this hardware cannot run {name} {shown(value)}: {unavailable[value]}"
        parameter = self.parameter(name)
        if isinstance(parameter, Choice) and any(
            isinstance(item, str | bool) for item in parameter.choices
        ):
            others = [item for item in self.left_out.get(name, {}) if item not in unavailable]
            words = [str(item) for item in (*parameter.choices, *others)]
            if not parameter.legal(value) and value not in others:
                return f"must be one of {', '.join(words)}, got {shown(value)}"
        elif parameter is not None and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            return f"must be a number, got {shown(value)}"
        return None


@dataclass
class Resolution:
    """Resolves one space.

    Args:
        source: the configuration, which receives errors.
        tunable: the parameters that can be tuned on this hardware.
        fixed: the `fixed` section.

    Attributes:
        tuned: parameters by name; explicit: names that the configuration writes down.
        dropped: parameters and values that are not tried.
    """

    source: WrittenConfig
    tunable: Tunable
    fixed: Mapping[str, Any]
    tuned: dict[str, Parameter] = field(default_factory=dict)
    explicit: set[str] = field(default_factory=set)
    dropped: list[DroppedValue] = field(default_factory=list)

    def space(
        self, entries: Mapping[str, Any] | None, constraints: Iterable[str] = ()
    ) -> Space | None:
        """The space; None, with problems, if there is none.

        Args:
            entries: the `space` section; None for the default space of the workload.
            constraints: expressions over the tuned parameters.
        """
        before = len(self.source.errors)
        self._select(entries)
        broken = [name for name in entries or () if self.source.is_broken(("space", name))]
        if broken or len(self.source.errors) > before:
            return None
        self._narrow()
        for name in self.explicit:
            self._check_conditions(self.tuned[name])
        self._settle_conditions()
        if not self.tuned and len(self.source.errors) == before:
            reasons = "; ".join(f"{item.parameter}: {item.reason}" for item in self.dropped)
            text = f"nothing is left to tune ({reasons})" if reasons else "nothing is tuned"
            self.source.refuse(("space",), text)
        if len(self.source.errors) > before:
            return None
        try:
            space = Space(
                *self.tuned.values(), constraints=[*self._declared_constraints(), *constraints]
            )
            space.sample(np.random.default_rng(0))  # fails if the constraints allow nothing
            return space
        except SpaceError as error:
            self.source.refuse(("space",), str(error))
            return None

    def untuned(self) -> dict[str, Any]:
        """The `fixed` section, with the defaults of declared parameters that are not tuned."""
        defaults = {
            name: parameter.default
            for name, parameter in self.tunable.parameters.items()
            if name not in self.tuned
            and parameter.has_default
            and self._conditions(parameter) is not None
        }
        return {**defaults, **self.fixed}

    def _select(self, entries: Mapping[str, Any] | None) -> None:
        """Collect the requested parameters, before conditions and constraints are resolved."""
        if entries is None:
            self._take(self.tunable.parameters)
            return
        for name, entry in entries.items():
            if self.source.is_broken(("space", name)):
                continue
            if entry == "auto":
                self._auto(name)
            elif isinstance(entry, dict | list):
                self._build(name, entry)
            else:
                self._refuse(name, f"auto, {ENTRY_RULE} is needed, got {shown(entry)}")
        for name in self.fixed:
            if name in entries:
                rule = f"{name} is also under space; take it out of one of them, "
                self.source.refuse(("fixed", name), f"{rule}or write space.{name}=[VALUE]")

    def _auto(self, name: str) -> None:
        group, gone = self.tunable.group(name), self.tunable.gone(name)
        if gone:
            self.dropped.append(DroppedValue(name, None, gone))
        elif not group:
            self._refuse(name, f"unknown knob; {nearest(name, self.tunable.names())}")
        self._take(group)
        if name in self.tuned:
            self.explicit.add(name)

    def _build(self, name: str, entry: dict[str, Any] | list[Any]) -> None:
        base = self.tunable.parameter(name)
        explicit = isinstance(entry, list) or "choices" in entry
        unavailable = self.tunable.unavailable(name, explicit=explicit)
        if base is None and self.tunable.workload and not self.tunable.gone(name):
            text = f"unknown parameter of workload {self.tunable.workload}"
            self._refuse(name, f"{text}; {nearest(name, self.tunable.names())}")
            return
        slow = [*self.tunable.unavailable(name)]
        try:
            read = read_keys(ENTRY_KEYS, {"choices": entry} if isinstance(entry, list) else entry)
            read = {key: v for key, v in read.items() if v is not None or key == "default"}
            self.tuned[name] = build(name, read, base, unavailable, slow)
        except UsageError as error:
            self.source.refuse_all(("space", name), error)
            return
        self.explicit.add(name)
        wanted = read.get("choices") or (base.choices if isinstance(base, Choice) else ())
        self.dropped += [
            DroppedValue(name, value, unavailable[value])
            for value in wanted
            if value in unavailable
        ]

    def _take(self, parameters: Mapping[str, Parameter]) -> None:
        for name, parameter in parameters.items():
            if name in self.fixed and name not in self.tuned:
                continue
            self.tuned[name] = parameter
            self.dropped += [
                DroppedValue(name, *item) for item in self.tunable.unavailable(name).items()
            ]

    def _check_conditions(self, parameter: Parameter) -> None:
        """Check that a condition names a known parameter, and values that it can have."""
        for parent, values in parameter.when.items():
            found = self.tuned.get(parent) or self.tunable.parameter(parent)
            if found is None and parent not in self.fixed:
                hint = nearest(parent, [*self.tuned, *self.tunable.parameters])
                self._refuse(parameter.name, f"when names the unknown parameter {parent!r}; {hint}")
            declared = self.tunable.parameter(parent) or found
            known = self.tunable.unavailable(parent)
            for value in values:
                right = not (found and declared) or found.legal(value) or declared.legal(value)
                if not right and value not in known:
                    rule = f"when gives {parent} a value that it never has, {shown(value)}"
                    self._refuse(parameter.name, rule)

    def _refuse(self, name: str, text: str) -> None:
        self.source.refuse(("space", name), text)

    def _settle_conditions(self) -> None:
        """Resolve conditions on untuned parameters; drop parameters that can never be active."""
        changed = True
        while changed:
            changed = False
            for name, parameter in list(self.tuned.items()):
                when = self._conditions(parameter)
                if when is None:
                    self._never_active(name, parameter)
                    changed = True
                elif when != parameter.when:
                    allowed = {parent: list(values) for parent, values in when.items()}
                    self.tuned[name] = parameter_from_dict({**parameter.to_dict(), "when": allowed})
                    changed = True

    def _conditions(self, parameter: Parameter) -> dict[str, tuple[Value, ...]] | None:
        """The remaining conditions on tuned parents; None if the parameter can never be active."""
        left: dict[str, tuple[Value, ...]] = {}
        for parent, values in parameter.when.items():
            if parent in self.tuned:
                found = {
                    parent: tuple(value for value in values if self.tuned[parent].legal(value))
                }
            else:
                declared = self.tunable.parameters.get(parent)
                value = self._fixed_value(parent)
                inherited = (
                    self._conditions(declared) if declared and parent not in self.fixed else {}
                )
                if value is None or inherited is None or not among(value, values):
                    return None
                found = inherited
            for name, allowed in found.items():
                left[name] = tuple(
                    value for value in allowed if among(value, left.get(name, allowed))
                )
        return left if all(left.values()) else None

    def _fixed_value(self, name: str) -> Value | None:
        value = self.fixed.get(name, self.tunable.defaults.get(name))
        if value is None and name in self.tunable.parameters:
            value = self.tunable.parameters[name].default
        return value if isinstance(value, bool | int | float | str) else None

    def _never_active(self, name: str, parameter: Parameter) -> None:
        del self.tuned[name]
        for parent, values in parameter.when.items():
            allowed = " or ".join(shown(value) for value in values)
            if parent in self.tuned:
                reason = f"needs {parent} to be {allowed}, which is not among its choices"
            else:
                value = shown(self._fixed_value(parent))
                reason = f"needs {parent} to be {allowed}, and {parent} is fixed at {value}"
                if name in self.explicit and not among(self._fixed_value(parent), values):
                    self._refuse(name, f"{reason}; tune {parent} too, or fix it otherwise")
                    return
        self.dropped.append(DroppedValue(name, None, reason))

    def _narrow(self) -> None:
        """Drop choices that a declared constraint excludes, given the untuned parameters."""
        for constraint in self._constraints():
            bound = self._bound(constraint)
            parameter = self.tuned[bound.names[0]] if bound and len(bound.names) == 1 else None
            if bound is None or not isinstance(parameter, Choice):
                continue
            name, choices = parameter.name, parameter.choices
            kept = [value for value in choices if bound.evaluate({name: value})]
            if kept and len(kept) < len(choices):
                default = parameter.default if parameter.default in kept else kept[0]
                changed = {**parameter.to_dict(), "choices": kept, "default": default}
                self.tuned[name] = parameter_from_dict(changed)
                others = [one for one in constraint.names if one not in self.tuned]
                given = " and ".join(f"{one} {shown(self._fixed_value(one))}" for one in others)
                reason = f"{given}, and {constraint}"
                self.dropped += [DroppedValue(name, v, reason) for v in choices if v not in kept]

    def _constraints(self) -> list[Expression]:
        named = {name for name in self.tunable.on_request if name in (*self.tuned, *self.fixed)}
        further = [c for c in self.tunable.further if named.intersection(c.names)]
        return [*self.tunable.constraints, *further]

    def _bound(self, constraint: Expression) -> Expression | None:
        """A constraint with the values of untuned parameters filled in.

        None if nothing in it is tuned, or a value is not known.
        """
        names = [name for name in constraint.names if name not in self.tuned]
        values = {name: self._fixed_value(name) for name in names}
        if len(names) == len(constraint.names) or None in values.values():
            return None
        return constraint.bind(values)

    def _declared_constraints(self) -> list[str]:
        bound = filter(None, map(self._bound, self._constraints()))
        return [str(one) for one in bound if not _always_holds(one, self.tuned)]


def split_constraints(texts: Iterable[str], tuned: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split constraints into those on metrics, and those between tuned parameters.

    A text that names a parameter and is more than `METRIC <= NUMBER` is not on a metric, even if it
    is malformed or names something else too: the space says what is wrong.
    """
    metrics: list[str] = []
    expressions: list[str] = []
    names = set(tuned)
    for text in texts:
        expression = quoted(text, names)
        named, is_metric = set[str](), False
        with suppress(UsageError):
            named = set(Expression(expression).names)
        with suppress(UsageError):
            is_metric = not _TERMS.search(Constraint.parse(text).metric)
        is_meant = names.intersection(re.findall(r"[\w.-]+", text)) and not is_metric
        if is_meant or (named and named <= names):
            expressions.append(expression)
        else:
            metrics.append(text)
    return metrics, expressions


def _always_holds(constraint: Expression, parameters: Mapping[str, Parameter]) -> bool:
    """Whether every combination of values satisfies it; False if there are too many to try."""
    named = [parameters[name] for name in constraint.names]
    if math.prod(one.size or math.inf for one in named) > MAX_TRIED:
        return False
    points = itertools.product(*(one.values() for one in named))
    return all(
        constraint.evaluate(dict(zip(constraint.names, point, strict=True))) for point in points
    )
