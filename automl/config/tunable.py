"""The parameters that can be tuned: those of a workload or, without a workload, all knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from automl.core import parse_constraints
from automl.errors import UsageError
from automl.suggesters.user_prior import split_prior
from search_spaces import Choice
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.knobs.base import ON_REQUEST
from search_spaces.knobs.parallelism import PARALLELISM, RANKS
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from workers.own_loop.knobs import resolved
from workers.training.settings import trainer_options
from workers.workload import Trainable, Workload

from .nodes import shown
from .schema import Document


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
        common = (
            trainer_options(with_strategies=not hardware.assumed)
            if issubclass(workload, Trainable)
            else {}
        )
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

    def knows(self, name: str) -> bool:
        """Whether the name is a parameter, a knob or an option here."""
        return any(name in known for known in (self.parameters, self.defaults, self.left_out)) or (
            bool(self.group(name))
        )

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


def all_known(document: Document, tunable: Tunable) -> bool:
    """Whether what can be tuned, found without torch suffices to find the errors.

    An unknown name may be an option of a strategy, and whether a strategy can run depends on its
    module and on this machine. Both are known only with torch.
    """
    names = set(_names(document))
    if RANKS.name in names or not all(map(tunable.knows, names)):
        return False
    strategies = [document["fixed"].get(PARALLELISM.name, "single")]
    entry = (document["space"] or {}).get(PARALLELISM.name, "auto")
    entry = entry.get("choices", ["single"]) if isinstance(entry, Mapping) else entry
    strategies += ["single"] if entry == "auto" else [entry]
    return all(
        "single" in item if isinstance(item, list | tuple) else item == "single"
        for item in strategies
    )


def _names(document: Document) -> Iterator[str]:
    """The names of parameters, knobs and options that the configuration uses."""
    entries: Mapping[str, Any] = document["space"] or {}
    yield from (*entries, *document["fixed"], *split_prior(document["prior"])[0])
    for entry in entries.values():
        when = entry.get("when") if isinstance(entry, Mapping) else None
        yield from when if isinstance(when, Mapping) else ()
    for text in document["constraints"]:
        try:
            parse_constraints(text)
        except UsageError:
            with suppress(UsageError):  # no expression at all, which is an error on any machine
                yield from Expression(text).names
