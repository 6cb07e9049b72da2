"""Goals and constraints on metrics: `maximize bleu within 30m`, `peak_memory_bytes <= 8e9`."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from automl.errors import UsageError
from search_spaces.values import show
from workers.protocol import Metric

from .arguments import listed, parse_duration

SECONDS: Final = Metric("seconds", "minimize", "speed")
PEAK_MEMORY: Final = Metric("peak_memory_bytes", "minimize", "memory")
ESTIMATED_MEMORY: Final = Metric("estimated_memory_bytes", "minimize", "memory")
CONTROLLER_METRICS: Final = (SECONDS, PEAK_MEMORY, ESTIMATED_MEMORY)
_SPEED_WORDS: Final = ("second", "latency", "throughput", "step_time", "duration")


def declared(name: str, metrics: Iterable[Metric]) -> Metric | None:
    """The declaration of a metric, by the workload or the controller; None if there is none."""
    return next((m for m in (*metrics, *CONTROLLER_METRICS) if m.name == name), None)


def guessed_aspects(name: str) -> frozenset[str]:
    """The aspects of a metric that is not declared, guessed from its name.

    This is the only place that guesses. It is used for objectives of the user's own; the report
    says so. A time to reach a quality, such as `seconds_to_target`, depends on quality and speed.
    """
    if "memory" in name or "bytes" in name:
        return frozenset({"memory"})
    if "time_to_" in name or "seconds_to_" in name:
        return frozenset({"quality", "speed"})
    return frozenset({"speed" if any(word in name for word in _SPEED_WORDS) else "quality"})


_WORD = r"[^\s,;:<>='\"`]+"
_METRIC = rf"(?!within\b|at\b){_WORD}(?: (?!within\b|at\b|end\b){_WORD})*"
METRIC_RULE = "a METRIC has no line break, quote, comma, colon, semicolon, <, > or ="
_GOAL = re.compile(rf"(minimize|maximize)\s+({_METRIC})(\s+at\s+the\s+end)?(?:\s+within\s+(\S+))?")
_CONSTRAINT = re.compile(rf"({_METRIC})\s*(<=|>=)\s*(\S+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]B)")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Goal:
    """A metric to minimise or maximise.

    Args:
        within: seconds of training that a trial may take for it; None for no limit.
        at_end: a trial's value is its final one (the last report, or what it returned).
        declared: what the workload says of the metric; None if nobody has declared it.
        returned: if a trial has returned the metric, that is its value; without it, and if the
            trial has only reported it, the best of all reports counts. A `SweepSpec` sets it.
    """

    metric: str
    maximize: bool = False
    within: float | None = None
    at_end: bool = False
    declared: Metric | None = field(default=None, compare=False)
    returned: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Parse `minimize METRIC` or `maximize METRIC`, with `at the end`, `within DURATION`.

        Raises:
            UsageError: the text has another form.
        """
        match = _GOAL.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            first = text.split()[0] if isinstance(text, str) and text.strip() else ""
            known = ("minimize", "maximize")
            close = difflib.get_close_matches(first.lower(), known, 1, 0.5)
            hint = f"; did you mean {close[0]!r}?" if close and first not in known else ""
            raise UsageError(
                "a goal is 'minimize METRIC' or 'maximize METRIC', "
                f"then 'at the end', 'within 10m' or nothing; {METRIC_RULE}; "
                f"got {show(text)}{hint}"
            )
        return cls(
            metric=match[2],
            maximize=match[1] == "maximize",
            within=parse_duration(match[4]) if match[4] else None,
            at_end=match[3] is not None,
        )

    @property
    def aspects(self) -> frozenset[str]:
        """What the goal measures; within a time, quality depends on speed too."""
        found = self.declared.aspects if self.declared else guessed_aspects(self.metric)
        return found | {"speed"} if self.within is not None and found == {"quality"} else found

    def loss(self, value: float) -> float:
        """The value, negated if larger is better, so that a smaller loss is always better."""
        return -value if self.maximize else value

    def __str__(self) -> str:
        text = f"{'maximize' if self.maximize else 'minimize'} {self.metric}"
        text += " at the end" if self.at_end else ""
        return text if self.within is None else f"{text} within {_exact(self.within)}s"


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric: `metric <= bound`, or `metric >= bound` if `upper` is False.

    Args:
        declared: what the workload says of the metric; None if nobody has declared it.
    """

    metric: str
    bound: float
    upper: bool = True
    declared: Metric | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parse `METRIC <= NUMBER` or `METRIC >= NUMBER`; `300MB` is a number of bytes.

        Raises:
            UsageError: the text has another form or the bound is not finite.
        """
        match = _CONSTRAINT.fullmatch(text.strip()) if isinstance(text, str) else None
        try:
            read = parse_memory if match and _SIZE.fullmatch(match[3]) else float
            bound = float(read(match[3])) if match else math.nan
        except ValueError:
            bound = math.nan
        if match is None or not math.isfinite(bound):
            raise UsageError(
                "a constraint is 'METRIC <= NUMBER' or 'METRIC >= NUMBER'; bytes may be "
                f"like 300MB; {METRIC_RULE}; got {show(text)}"
            )
        return cls(match[1], bound, match[2] == "<=")

    @property
    def aspects(self) -> frozenset[str]:
        """What the metric measures."""
        return self.declared.aspects if self.declared else guessed_aspects(self.metric)

    def excess(self, value: float) -> float:
        """How far `value` is beyond the bound; at most 0 if the constraint holds."""
        return value - self.bound if self.upper else self.bound - value

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether the metric is present and within its bound."""
        return self.metric in metrics and self.excess(metrics[self.metric]) <= 0

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.upper else '>='} {_exact(self.bound)}"


def _exact(number: float) -> str:
    # In six digits if they are enough, else in full: the ledger keeps this text.
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


def parse_goals(goals: str | Goal | Iterable[str | Goal]) -> tuple[Goal, ...]:
    """Parse one goal or several; parsed goals stay.

    Raises:
        UsageError: there is no goal, a text is malformed, or two goals have the same metric.
    """
    items = listed("goals", goals, (str, Goal), "a text such as 'minimize loss'")
    parsed = tuple(g if isinstance(g, Goal) else Goal.parse(g) for g in items)
    if not parsed:
        raise UsageError("a sweep needs at least one goal, such as 'minimize loss'")
    names = [g.metric for g in parsed]
    if len(set(names)) < len(names):
        raise UsageError(f"each goal needs a metric of its own, got {', '.join(names)}")
    return parsed


def parse_constraints(
    constraints: str | Constraint | Iterable[str | Constraint],
) -> tuple[Constraint, ...]:
    """Parse one constraint or several; parsed constraints stay.

    Raises:
        UsageError: a text is malformed.
    """
    words = "a text such as 'peak_memory_bytes <= 8e9'"
    items = listed("constraints", constraints, (str, Constraint), words)
    return tuple(c if isinstance(c, Constraint) else Constraint.parse(c) for c in items)


def parse_memory(text: str) -> int:
    """Bytes of `500MB` or `1.5 GB` (powers of 1000).

    Raises:
        UsageError: the text has another form, or the amount is not finite.
    """
    found = _SIZE.fullmatch(text.strip())
    size = float(found[1]) * _UNITS[found[2].upper()] if found else math.nan
    if not math.isfinite(size):
        raise UsageError(f"an amount of memory is like 500MB or 1.5GB, got {show(text)}")
    return round(size)
