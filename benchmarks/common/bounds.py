"""What must hold, said in the same way by every benchmark: a line a bound, and the verdict on the last line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One thing that must hold: whether it does, and the figures; None where it was not measured."""

    name: str
    holds: bool | None
    figures: str

    def __str__(self) -> str:
        mark = {True: "ok", False: "MISSED", None: "not measured"}[self.holds]
        return f"{mark}: {self.name}: {self.figures}"


def at_most(name: str, measured: float | None, limit: float, note: str = "") -> Verdict:
    """Whether what was measured is no more than the limit."""
    holds = None if measured is None else measured <= limit
    return Verdict(name, holds, _figures(measured, f"at most {limit:.3g}", note))


def at_least(name: str, measured: float | None, limit: float, note: str = "") -> Verdict:
    """Whether what was measured is no less than the limit."""
    holds = None if measured is None else measured >= limit
    return Verdict(name, holds, _figures(measured, f"at least {limit:.3g}", note))


def _figures(measured: float | None, limit: str, note: str) -> str:
    return ", ".join(filter(None, ("-" if measured is None else f"{measured:.3g}", limit, note)))


def conclude(found: Sequence[Verdict]) -> int:
    """Print every verdict, on the last line those that do not hold.

    Returns:
        The exit status: 1 where one does not hold or was not measured.
    """
    print("\n" + "\n".join(map(str, found)))
    missed = [verdict for verdict in found if not verdict.holds]
    figures = "; ".join(map(str, missed))
    print(
        f"NOT HELD {len(missed)} of {len(found)}: {figures}"
        if missed
        else f"HELD: all {len(found)}"
    )
    return 1 if missed else 0
