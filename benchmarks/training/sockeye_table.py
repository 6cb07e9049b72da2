"""The table and the claims of `sockeye.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import mean, median
from typing import Any

from benchmarks.common.bounds import Claim, at_least, at_most
from benchmarks.common.store import RESULTS

ROWS = RESULTS / "sockeye.jsonl"
PARTS = ("speed", "quality", "decoding")
DECODING_SPEEDUP = 2.0
CLOCKS = ("cpu_seconds", "wall_seconds")
SPEEDUPS = {"fp32": 1.6, "bf16": 2.4}
BLEU_LOSS = 0.2
LABELS = ("what", "system", "seed", "round", "threads", "machine")
Rows = Mapping[tuple[Any, ...], Mapping[str, Any]]


def table(rows: Rows) -> str:
    """A line of medians for each kind of measurement and each system."""
    lines = [f"{'what':12} {'system':22} {'runs':>4}  median"]
    for what in dict.fromkeys(key[0] for key in rows):
        for system in dict.fromkeys(key[1] for key in rows if key[0] == what):
            found = _of(rows, what, system)
            names = [name for name in found[0] if name not in LABELS]
            values = "  ".join(f"{n} {_text(n, median(r[n] for r in found))}" for n in names)
            lines.append(f"{what:12} {system:22} {len(found):4d}  {values}")
    return "\n".join(lines)


def claims(rows: Rows, parts: Collection[str], clocks: Sequence[str] = CLOCKS) -> list[Claim]:
    """Everything that must hold of these parts of the measurement.

    Args:
        rows: the measured rows.
        parts: some of `PARTS`.
        clocks: the seconds to compare; wall seconds need pairs that ran at the same time.
    """
    found = []
    if "speed" in parts:
        found += _training(rows, clocks)
    if "quality" in parts:
        for system in SPEEDUPS:
            found += _quality(rows, system)
    if "decoding" in parts:
        found += _decoding(rows, "beam 5", clocks) + _decoding(rows, "beam 1", clocks)
    return found


def _training(rows: Rows, clocks: Sequence[str]) -> list[Claim]:
    found = []
    for system, factor in SPEEDUPS.items():
        for clock in clocks:
            name = f"training {system}, speed over Sockeye's, {clock}"
            found.append(at_least(name, _ratio(rows, "speed", system, clock), factor))
        start = f"start to first update {system}, share of Sockeye's"
        peak = f"peak memory of training {system}, share of Sockeye's"
        found.append(at_most(start, _share(rows, "speed", system, "start"), 0.75))
        found.append(at_most(peak, _share(rows, "speed", system, "peak_bytes"), 1.0))
    return found


def _quality(rows: Rows, system: str) -> list[Claim]:
    peak = f"peak memory of the long training {system}, share of Sockeye's"
    found = [at_most(peak, _share(rows, "quality", system, "peak_bytes"), 1.0)]
    for key, claim, worst in (
        ("perplexity", at_most, max),
        ("valid", at_least, min),
        ("test", at_least, min),
    ):
        ours, theirs = ([r[key] for r in _of(rows, "quality", s)] for s in (system, "sockeye"))
        spread = f"Sockeye {min(theirs):.2f} to {max(theirs):.2f}" if theirs else ""
        value = mean(ours) if ours else None
        limit = worst(theirs) if theirs else None
        found.append(claim(f"{key} {system}, mean", value, limit, spread))
    return found


def _decoding(rows: Rows, beam: str, clocks: Sequence[str]) -> list[Claim]:
    plain, theirs = (_of(rows, beam, system) for system in ("fp32", "sockeye"))
    loss = theirs[0]["bleu"] - plain[0]["bleu"] if plain and theirs else None
    found = [at_most(f"{beam} fp32, BLEU below Sockeye's", loss, BLEU_LOSS)]
    for clock in clocks:
        name = f"{beam} fp32, speed over Sockeye's, {clock}"
        found.append(at_least(name, _ratio(rows, beam, "fp32", clock), DECODING_SPEEDUP))
    name = f"{beam} fp32, peak memory, share of Sockeye's"
    found.append(at_most(name, _share(rows, beam, "fp32", "peak_bytes"), 1.0))
    return found


def _of(rows: Rows, what: str, system: str) -> list[Mapping[str, Any]]:
    return [row for key, row in rows.items() if key[0] == what and key[1] == system]


def _ratio(rows: Rows, what: str, system: str, key: str) -> float | None:
    """Median over pairs of Sockeye's number divided by ours; None without a pair."""
    theirs = {(row["seed"], row["round"]): row for row in _of(rows, what, "sockeye")}
    found = [(row, theirs.get((row["seed"], row["round"]))) for row in _of(rows, what, system)]
    pairs = [other[key] / row[key] for row, other in found if other and key in row and key in other]
    return median(pairs) if pairs else None


def _share(rows: Rows, what: str, system: str, key: str) -> float | None:
    """The inverse of `_ratio`."""
    ratio = _ratio(rows, what, system, key)
    return 1 / ratio if ratio else None


def _text(name: str, value: float) -> str:
    if name.endswith("bytes"):
        return f"{value / 1e6:.0f} MB"
    return f"{1000 * value:.2f} ms" if name.endswith("_seconds") else f"{value:.4g}"
