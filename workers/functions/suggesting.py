"""`trial.suggest_float` and its kin: an objective says its ranges while it runs, as in Optuna.

A value that was proposed is used; else trial 0 takes the middle, and others draw one. Each range is
told, so that the next proposals know it (`search_spaces.change`).
"""

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.change import parameter_of, same_kind
from search_spaces.errors import UsageError
from search_spaces.parameters import Choice, Float, Int, Parameter


@dataclass
class Asking:
    """What a trial knows when its objective asks for a parameter.

    Args:
        known: the ranges that trials have asked for, by name, each as a parameter's dictionary with
            the `line` that did; None if the space was declared.
        given: the values that were proposed.
        number: of the trial; 0 takes middles.
        seed: of values that nobody proposed; the same on all ranks and in each attempt.
        tell: called with a value by name, the parameter and the line.
        asked, values: what this attempt has asked for, and what it got.
    """

    known: Mapping[str, Any] | None
    given: Mapping[str, Any]
    number: int
    seed: int
    tell: Callable[[dict[str, Any], dict[str, Any], str], None]
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def value(self, wanted: Parameter, line: str) -> Any:
        """The value of a parameter.

        Raises:
            UsageError: it has another kind of range than before, or the space was declared without.
        """
        name = wanted.name
        if self.known is None:
            if name in self.given:
                return self.given[name]
            raise UsageError(
                f"the space of this sweep was declared, and {name!r} is not active in it: "
                "declare it too, or give no space, so that trial.suggest_... says it"
            )
        before = self.asked.get(name) or self.known.get(name) or wanted.to_dict()
        earlier = parameter_of(before)
        if not same_kind(earlier, wanted):
            raise UsageError(
                f"{line} asks for {wanted!r}, and {before.get('line')} has asked for "
                f"{earlier!r}: give one of them another name"
            )
        if name not in self.values or not wanted.legal(self.values[name]):
            self.values[name] = self._chosen(wanted, earlier)
            self.asked[name] = {**wanted.to_dict(), "line": line}
            self.tell({name: self.values[name]}, wanted.to_dict(), line)
        return self.values[name]

    def _chosen(self, wanted: Parameter, earlier: Parameter) -> Any:
        """The proposed value, in another range its relative position; else middle, or random."""
        if wanted.name in self.given:
            value = self.given[wanted.name]
            if wanted.legal(value):
                return wanted.accept(value)
            if earlier.legal(value):
                return wanted.from_unit(earlier.to_unit(value))
        if self.number == 0:
            return wanted.middle()
        rng = np.random.default_rng([self.seed, zlib.crc32(wanted.name.encode())])
        return wanted.from_unit(float(rng.random()))


class Suggesting:
    """The words of Optuna's trials, for what has an `asking` and `details`."""

    asking: Asking
    details: Any

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What `set_user_attr` has set."""
        found: dict[str, Any] = self.details.setdefault("user_attrs", {})
        return found

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a fact about the trial: `trial.details["user_attrs"]` in the result."""
        self.user_attrs[key] = value

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
        default: float | None = None,
    ) -> float:
        """A real number of a range; `default` is the value of trial 0."""
        wanted = Float(name, low, high, step=step, log=log, default=default)
        return float(self._suggested(wanted))

    def suggest_int(
        self,
        name: str,
        low: int,
        high: int,
        *,
        step: int = 1,
        log: bool = False,
        default: int | None = None,
    ) -> int:
        """A whole number of a range; `default` is the value of trial 0."""
        return int(self._suggested(Int(name, low, high, step=step, log=log, default=default)))

    def suggest_categorical(self, name: str, choices: Sequence[Any], **default: Any) -> Any:
        """One of some choices; `default` is the value of trial 0."""
        given = list(choices)
        wanted = Choice(name, given, **default)
        found = self._suggested(wanted)
        return given[wanted.index(found)] if wanted.legal(found) else found  # a list stays one

    def _suggested(self, wanted: Parameter) -> Any:
        code = sys._getframe(2)
        return self.asking.value(wanted, f"{Path(code.f_code.co_filename).name}:{code.f_lineno}")
