"""Durations: read `1h30m` as seconds, and write seconds as `1h 30m`."""

from __future__ import annotations

import math
import re

from automl.errors import UsageError
from search_spaces.validation import show

from .arguments import MAX

_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)s)?"
    r"(?:(\d+(?:\.\d+)?)ms)?"
)
_UNIT_SECONDS = (86400, 3600, 60, 1, 1e-3)


def parse_duration(text: str | float, *, zero: bool = False) -> float:
    """Seconds of `90`, `90s`, `1.5h`, `1h30m`, `2d` or `500ms`.

    Args:
        zero: whether it may be zero.

    Raises:
        UsageError: the text has another form, or the duration is not positive and finite.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text) if abs(text) <= MAX else math.inf
    else:
        try:
            seconds = float(text)
        except (TypeError, ValueError, OverflowError):
            match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
            parts = match.groups() if match else ()
            known = [float(p) * unit for p, unit in zip(parts, _UNIT_SECONDS, strict=False) if p]
            seconds = sum(known) if known else math.nan
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        raise UsageError(f"a duration is like 90s, 10m or 1h30m, got {show(text)}")
    return seconds


def duration(seconds: float) -> str:
    """`20ms`, `8s`, `1m 05s`, `2h 03m`, `3d 04h`."""
    if 0 < seconds < 0.9995:
        return f"{max(seconds * 1000, 1):.0f}ms"
    whole = int(max(seconds, 0) + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    days = whole // 86400
    return f"{days}d {whole % 86400 // 3600:02d}h" if days < 1e5 else f"{seconds / 86400:.3g} days"
