"""The table of `benchmarks/training/sockeye.py`: each bound beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

ROWS = Path(__file__).parents[1] / "results" / "sockeye.jsonl"
GROUPS = (  # forms of decoding, and how much faster than Sockeye the best of them must be
    (("fp32", "fp32 shortlist", "bf16 shortlist"), 3.0),
    (("int8", "int8 shortlist", "ctranslate2", "ctranslate2 shortlist"), 8.0),
)
Rows = Mapping[tuple[Any, ...], Mapping[str, Any]]
RECORDED = {  # Sockeye 3.1.34, as measured before this benchmark was there: two quiet cores, two threads
    "speed": "103 sentences a CPU second, start 6.2 CPU s, peak 1,505 MB",
    "quality": "600 updates: perplexity 19.9, BLEU 28.7 valid, 29.0 test, one seed",
    "decoding": "beam 5 15.1 and beam 1 6.2 CPU ms a sentence, 504 MB",
}


def table(rows: Rows) -> str:
    """Rows of numbers, then each bound with "holds" or "MISSED"."""
    lines = [f"{'what':12} {'system':22} {'runs':>4}  median"]
    for what in dict.fromkeys(key[0] for key in rows):
        for system in dict.fromkeys(key[1] for key in rows if key[0] == what):
            found = _of(rows, what, system)
            names = [
                n
                for n in found[0]
                if n not in ("what", "system", "seed", "round", "threads", "machine")
            ]
            values = "  ".join(f"{n} {_text(n, median(r[n] for r in found))}" for n in names)
            lines.append(f"{what:12} {system:22} {len(found):4d}  {values}")
    lines += [f"Sockeye as recorded earlier, {what}: {text}" for what, text in RECORDED.items()]
    lines += [f"{'holds ' if holds else 'MISSED'}  {text}" for text, holds in bounds(rows)]
    return "\n".join(lines)


def failed(rows: Rows) -> list[str]:
    """Bounds that are missed."""
    return [text for text, holds in bounds(rows) if not holds]


def bounds(rows: Rows) -> list[tuple[str, bool]]:
    """What must hold, as far as it was measured: a line about each, and whether it does."""
    found: list[tuple[str, bool]] = []
    say = partial(_say, found)
    for clock in ("cpu_seconds", "wall_seconds"):
        say(
            f"training fp32, speed over Sockeye's, {clock}",
            _ratio(rows, "speed", "fp32", clock),
            1.6,
            True,
        )
        say(
            f"training bf16, speed over Sockeye's, {clock}",
            _ratio(rows, "speed", "bf16", clock),
            2.4,
            True,
        )
    for system in ("fp32", "bf16"):
        start, peak = (_ratio(rows, "speed", system, key) for key in ("start", "peak_bytes"))
        say(f"start to first update {system}, share of Sockeye's", start and 1 / start, 0.75, False)
        say(f"peak memory of training {system}, share of Sockeye's", peak and 1 / peak, 1.0, False)
        longest = _ratio(rows, "quality", system, "peak_bytes")
        say(
            f"peak memory of the long training {system}, share of Sockeye's",
            longest and 1 / longest,
            1.0,
            False,
        )
        for key, sign in (("perplexity", 1), ("valid", -1), ("test", -1)):
            ours, theirs = ([r[key] for r in _of(rows, "quality", s)] for s in (system, "sockeye"))
            if ours and theirs:
                worst = max(theirs) if sign > 0 else min(theirs)
                spread = f"Sockeye {min(theirs):.2f} to {max(theirs):.2f}"
                say(f"{key} {system}, mean ({spread})", mean(ours), worst, sign < 0)
    for beam in ("beam 5", "beam 1"):
        found += _decoding(rows, beam)
    for row in (r for key, r in rows.items() if key[0] == "padding"):
        say(f"padding, {row['system']}", row["share"], 0.08, False)
    shares = [r["share"] for r in _of(rows, "overhead", "fp32")]
    say("overhead of the loop", median(shares) if shares else None, 0.05, False)
    return found


def _decoding(rows: Rows, beam: str) -> list[tuple[str, bool]]:
    """The better of a group's forms counts, among those whose BLEU is near enough."""
    found: list[tuple[str, bool]] = []
    say = partial(_say, found)
    plain, theirs = (_of(rows, beam, system) for system in ("fp32", "sockeye"))
    if plain and theirs:
        say(f"{beam} fp32, BLEU below Sockeye's", theirs[0]["bleu"] - plain[0]["bleu"], 0.2, False)
    for systems, factor in GROUPS:
        near = [
            s
            for s in systems
            if plain and any(plain[0]["bleu"] - r["bleu"] <= 0.2 for r in _of(rows, beam, s))
        ]
        for clock in ("cpu_seconds", "wall_seconds"):
            ratios = {s: ratio for s in near if (ratio := _ratio(rows, beam, s, clock))}
            if ratios:
                best = max(ratios, key=lambda s: ratios[s])
                say(f"{beam} {best}, speed over Sockeye's, {clock}", ratios[best], factor, True)
    for system in ("fp32", "ctranslate2"):
        peak = _ratio(rows, beam, system, "peak_bytes")
        say(f"{beam} {system}, peak memory, share of Sockeye's", peak and 1 / peak, 1.0, False)
    return found


def _say(
    found: list[tuple[str, bool]], text: str, value: float | None, bound: float, least: bool
) -> None:
    if value is not None:
        sign, holds = (">=", value >= bound) if least else ("<=", value <= bound)
        found.append((f"{text}: {value:.3f} (bound {sign} {bound:.3f})", holds))


def _of(rows: Rows, what: str, system: str) -> list[Mapping[str, Any]]:
    return [row for key, row in rows.items() if key[0] == what and key[1] == system]


def _ratio(rows: Rows, what: str, system: str, key: str) -> float | None:
    """Median over pairs of Sockeye's number by ours."""
    theirs = {(row["seed"], row["round"]): row for row in _of(rows, what, "sockeye")}
    found = [(row, theirs.get((row["seed"], row["round"]))) for row in _of(rows, what, system)]
    pairs = [other[key] / row[key] for row, other in found if other and key in row and key in other]
    return median(pairs) if pairs else None


def _text(name: str, value: float) -> str:
    if name.endswith("bytes"):
        return f"{value / 1e6:.0f} MB"
    return f"{1000 * value:.2f} ms" if name.endswith("_seconds") else f"{value:.4g}"
