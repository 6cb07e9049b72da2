"""What there is to tune: the parameters of a workload, or the knobs alone where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from search_spaces import Choice
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from workers.training.settings import trainer_options
from workers.workload import Trainable

from .nodes import shown

if TYPE_CHECKING:
    from workers.workload import Workload


@dataclass(frozen=True)
class Declaration:
    """What a configuration can name under `space:` and `fixed:`, as this hardware can run it.

    Args:
        hardware: this machine's.
        workload: its name, None for an objective of the user's own.
        parameters: declared by the workload.
        constraints: of the workload's space.
        defaults: options of the workload that are not tuned by default.
        left_out: for each parameter the values that this hardware cannot run, and why.
    """

    hardware: Hardware
    workload: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[Value, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: type[Workload] | None, hardware: Hardware) -> Declaration:
        """The declaration of a workload, of nothing but the knobs for None."""
        if workload is None:
            return cls(hardware)
        space = workload.space(hardware)
        left_out: dict[str, dict[Value, str]] = {}
        for dropped in workload.dropped(hardware):
            left_out.setdefault(dropped.parameter, {})[dropped.value] = dropped.reason
        common = trainer_options() if issubclass(workload, Trainable) else {}
        defaults = {**common, **workload.defaults}
        return cls(hardware, workload.name, space.parameters, space.constraints, defaults, left_out)

    def group(self, name: str) -> dict[str, Parameter]:
        """The parameters that a name stands for: itself, or those of the knob of that name; empty where unknown."""
        if name in self.parameters:
            return {name: self.parameters[name]}
        if name not in KNOBS.names():
            return {}
        knob = {found.name: found for found in KNOBS.get(name)().resolve(self.hardware).parameters}
        if self.workload is None:
            return knob
        return {key: self.parameters[key] for key in knob if key in self.parameters}

    def names(self) -> list[str]:
        """Every name that can be tuned."""
        return [*self.parameters] if self.workload else KNOBS.names()

    def unavailable(self, name: str, *, asked: bool = False) -> dict[Value, str]:
        """The values of a parameter that this hardware cannot run, and why.

        Args:
            asked: the values were asked for by name; those that run slowly are not left out then.
        """
        if self.workload is not None or name not in KNOBS.names():
            found = dict(self.left_out.get(name, {}))
        else:
            dropped = KNOBS.get(name)().resolve(self.hardware).dropped
            found = {item.value: item.reason for item in dropped if item.parameter == name}
        slow = self.hardware.slow
        return {
            v: reason for v, reason in found.items() if not (asked and slow.get(str(v)) == reason)
        }

    def gone(self, name: str) -> str | None:
        """Why a parameter of the workload is not there at all on this hardware; None where it is, or is unknown."""
        if name in self.parameters or name not in self.left_out:
            return None
        return "; ".join(f"{value}: {reason}" for value, reason in self.left_out[name].items())

    def refuse_fixed(self, name: str, value: Any) -> str | None:
        """Why a value under `fixed:` is wrong, None where it is not; numbers may lie outside of what is tuned."""
        if self.workload is None:
            return None
        known = list(dict.fromkeys([*self.parameters, *self.defaults, *self.left_out]))
        if name not in known:
            return f"unknown option of workload {self.workload}; {nearest(name, known)}"
        unavailable = self.unavailable(name, asked=True)
        if isinstance(value, bool | int | float | str) and value in unavailable:
            return f"this hardware cannot run {name} {shown(value)}: {unavailable[value]}"
        parameter = self.parameters.get(name)
        if isinstance(parameter, Choice) and any(
            isinstance(item, str | bool) for item in parameter.choices
        ):
            words = [str(item) for item in parameter.choices]
            if not parameter.legal(value):
                return f"must be one of {', '.join(words)}, got {shown(value)}"
        elif parameter is not None and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            return f"must be a number, got {shown(value)}"
        return None
