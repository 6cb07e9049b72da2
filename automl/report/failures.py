"""Failures in words: grouped by kind and message, and the part of the space that they take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from automl.core import Snapshot, Trial, TrialState
from automl.core.text import number, shell_line
from search_spaces import Choice, Float, Int, Space

LEAST: Final = 5  # failures alike, for a sentence about where they are
COVERED: Final = 0.75  # of the failures that such a part must hold
PURE: Final = 0.75  # of the trials in it that must fail
MAX_PARTS: Final = 12  # of which pairs are looked at
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_ENDED: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.FAILED)


@dataclass(frozen=True)
class Part:
    """A part of the space: `name` above or below a value, equal to a choice, or not equal."""

    name: str
    sign: str
    value: Any

    def holds(self, trial: Trial) -> bool:
        """Whether a trial is in it."""
        if self.name not in trial.params:
            return False
        one: Any = trial.params[self.name]
        if self.sign in "<>":
            return bool(one > self.value if self.sign == ">" else one < self.value)
        return bool((one == self.value) == (self.sign == "="))

    def __str__(self) -> str:
        words = {">": " above ", "<": " below ", "=": "=", "!=": " other than "}[self.sign]
        return f"{self.name}{words}{number(self.value)}"

    def rest(self, space: Space) -> str:
        """What is left of the parameter without it, for `automl set`; "" if nothing is."""
        parameter = space.parameters[self.name]
        if isinstance(parameter, Choice):
            left = [one for one in parameter.choices if (one == self.value) == (self.sign == "!=")]
            shown = ", ".join("null" if one is None else str(one) for one in left)
            return f"space.{self.name}=[{shown}]" if left else ""
        assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
        low, high = (
            (parameter.low, self.value) if self.sign == ">" else (self.value, parameter.high)
        )
        return f"space.{self.name}=[{low:g}, {high:g}]"


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one kind that say the same.

    Args:
        kind: of the failure; trials: their numbers.
        message: of the first one.
        where: the part of the space that they take, and how many trials of it fail; "" if it is
            not known.
        cut: the line that cuts this part off; "" if there is none.
    """

    kind: str
    message: str
    trials: tuple[int, ...]
    where: str = ""
    cut: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {**vars(self), "trials": list(self.trials[:50]), "count": len(self.trials)}

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.trials[:4])) + (", ..." if len(self.trials) > 4 else "")
        which = f"trial{'s' * (len(self.trials) > 1)} {shown}"
        line = f"{len(self.trials)} {self.kind.replace('_', ' ')}: {self.message} ({which})"
        return f"{line}; {self.where}" if self.where else line


def failure_groups(snapshot: Snapshot) -> list[FailureGroup]:
    """The groups, the largest first."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in snapshot.in_state(TrialState.FAILED):
        key = trial.failure or "unknown", _NUMBERS.sub("#", _first_line(trial))
        groups.setdefault(key, []).append(trial)
    ended = snapshot.in_state(*_ENDED)
    space = snapshot.spec.known_space if snapshot.spec else None
    found = []
    for (kind, _), trials in groups.items():
        parts = _where(trials, ended, space) if space else ()
        inside = [one for one in ended if parts and all(part.holds(one) for part in parts)]
        failed = sum(one.state is TrialState.FAILED for one in inside)
        words = " and ".join(map(str, parts))
        cut = parts[0].rest(space) if len(parts) == 1 and space else ""
        numbers = tuple(trial.number for trial in trials)
        found.append(
            FailureGroup(
                kind,
                _first_line(trials[0])[:300],
                numbers,
                f"{words}: {failed} of {len(inside)} failed" if parts else "",
                shell_line(["automl", "set", snapshot.sweep, cut]) if cut else "",
            )
        )
    return sorted(found, key=lambda one: (-len(one.trials), one.trials[0]))


def _first_line(trial: Trial) -> str:
    return (trial.message.splitlines() or [""])[0].strip() or "no message"


def _where(failed: Sequence[Trial], ended: Sequence[Trial], space: Space) -> tuple[Part, ...]:
    """The part that holds most of these failures and hardly a success; () if there is none."""
    if len(failed) < LEAST:
        return ()
    parts = list(_parts(failed, ended, space))
    spread = sorted(parts, key=lambda one: -sum(map(one.holds, failed)))[:MAX_PARTS]
    pairs = [pair for pair in combinations(spread, 2) if pair[0].name != pair[1].name]
    for group in ([(one,) for one in parts], pairs):
        scored = ((_score(one, failed, ended), one) for one in group)
        score, found = max(scored, default=(0.0, ()), key=lambda one: one[0])
        if score > 0:
            return found
    return ()


def _score(parts: Sequence[Part], failed: Sequence[Trial], ended: Sequence[Trial]) -> float:
    """How well a part tells these failures from the rest; 0 if it does not."""
    covered = sum(all(part.holds(one) for part in parts) for one in failed) / len(failed)
    inside = [one for one in ended if all(part.holds(one) for part in parts)]
    pure = sum(one.state is TrialState.FAILED for one in inside) / max(len(inside), 1)
    is_all = len(inside) == len(ended)
    return covered * pure if covered >= COVERED and pure >= PURE and not is_all else 0.0


def _parts(failed: Sequence[Trial], ended: Sequence[Trial], space: Space) -> Iterator[Part]:
    """Values of choices, and the gaps between values that failed and values that did not."""
    for name, parameter in space.parameters.items():
        values: list[Any] = [one.params[name] for one in failed if name in one.params]
        if not values or parameter.size == 1:
            continue
        if isinstance(parameter, Choice):
            yield from (Part(name, "=", value) for value in dict.fromkeys(values))
            yield from (Part(name, "!=", one) for one in parameter.choices if one not in values)
            continue
        good: list[Any] = [
            one.params[name]
            for one in ended
            if name in one.params and one.state is not TrialState.FAILED
        ]
        for sign, ahead in ((">", 1), ("<", -1)):
            for quantile in (0.0, 0.1, 0.25):  # a few failures may lie elsewhere
                cut = sorted(values)[::ahead][int(quantile * (len(values) - 1))]
                if before := [one for one in good if ahead * one < ahead * cut]:
                    yield Part(name, sign, ahead * max(ahead * one for one in before))
