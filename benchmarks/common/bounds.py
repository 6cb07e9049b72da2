"""The verdict of a benchmark: a line for each claim, and the summary on the last line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One thing that must hold.

    Args:
        name: what must hold.
        holds: whether it does; None if it was not measured.
        figures: the measured value and the limit, as text.
    """

    name: str
    holds: bool | None
    figures: str

    def __str__(self) -> str:
        mark = {True: "ok", False: "MISSED", None: "not measured"}[self.holds]
        return f"{mark}: {self.name}: {self.figures}"


def at_most(name: str, measured: float | None, limit: float | None, note: str = "") -> Claim:
    """Claim that a value is no more than the limit; not measured if one of them is None."""
    holds = None if measured is None or limit is None else measured <= limit
    return Claim(name, holds, _figures(measured, "at most", limit, note))


def at_least(name: str, measured: float | None, limit: float | None, note: str = "") -> Claim:
    """Claim that a value is no less than the limit; not measured if one of them is None."""
    holds = None if measured is None or limit is None else measured >= limit
    return Claim(name, holds, _figures(measured, "at least", limit, note))


def complete(name: str, missing: Sequence[object]) -> Claim:
    """Claim that everything was measured; `missing` lists what was not."""
    shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    return Claim(name, None if missing else True, f"missing: {shown}" if missing else "all")


def _figures(measured: float | None, word: str, limit: float | None, note: str) -> str:
    value, bound = ("-" if number is None else f"{number:.3g}" for number in (measured, limit))
    return ", ".join(filter(None, (value, f"{word} {bound}", note)))


def conclude(claims: Sequence[Claim]) -> int:
    """Print every claim, and on the last line those that do not hold.

    Returns:
        The exit status: 1 if a claim is missed or was not measured, or if there is no claim.
    """
    print("\n" + "\n".join(map(str, claims)))
    missed = [claim for claim in claims if not claim.holds]
    if not claims:
        print("NOT HELD: nothing was measured")
    elif missed:
        print(f"NOT HELD {len(missed)} of {len(claims)}: {'; '.join(map(str, missed))}")
    else:
        print(f"HELD: all {len(claims)}")
    return 1 if missed or not claims else 0
