"""Writes a first configuration for a command, from the numbers among its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from automl.core.arguments import NAME
from automl.core.text import printable, shell_line
from automl.errors import UsageError
from workers.command.printed_metrics import VALUE, PrintedMetric

from .source import plain_scalar
from .template import TAIL, name_of

# A rate is real and tuned on a logarithmic scale, even if it is written as `20`.
RATES: Final = re.compile(
    "lr|rate|decay|wd|l1|l2|alpha|gamma|lambda|lam|reg|penalty|eta|eps|epsilon|tol|temperature|c|"
    "clip"
)
MAX_RATE: Final = 1000  # `sample_rate 16000` is none
ZERO_RATE: Final = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # tried for a rate that is 0 now
NOT_TUNED: Final = ("seed", "port", "device", "gpu", "worker", "thread", "rank", "verbose")
LENGTHS: Final = ("epoch", "step", "iteration", "updates", "rounds")
SHARES: Final = ("dropout", "momentum", "beta", "smoothing", "ratio", "fraction", "prob")
MAX_SHOWN: Final = 150  # characters of a line of output
FACTOR: Final = 10  # a positive number is tuned from a tenth to ten times its value
TIMES: Final = 4  # a count from a quarter to four times
POWERS_FROM: Final = 8  # a power of two from here on is tuned in powers of two
_SHORT: Final = re.compile(r"-[A-Za-z] [-+]?[\d.]+(?:e[-+]?\d+)?")
_JOINED: Final = re.compile(r"((?:--)?[A-Za-z][\w.-]*)=(.+)")

PREAMBLE: Final = """\
# Tune {program}
#
#   automl sweep --dry-run {file} -- {command}
#   automl sweep {file} -- {command}
#
# The first line checks it and shows what would be tuned; the second runs it. How a command can
# report in other ways, pause and go on: docs/guides/script.md.

name: {name}

{goal}
# What is tuned, by these rules: a number from a tenth to ten times its value, logarithmic; a count
# from a quarter to four times; a power of two in powers of two; a dropout and the like from 0 to 1.
space:
{space}{left}
{length}"""


REPORTS: Final = """\
# The metric that counts, and how the command prints it: RE2 expressions with one group, searched in
# each line of its output. {why}
goals: {goal}
reports:
{patterns}
"""
REPORTED: Final = """\
# The metric that counts; the command writes it to the file $AUTOML_REPORTS.
goals: {goal}
"""
GUESS: Final = PrintedMetric(
    "val_loss",
    False,
    rf"(?i:\bval\w*[ _-]loss)[\s:='\"]+{VALUE}",
    r"(?i)\b(?:epoch|step)\W+(\d+)",
    "val",
    "",
)


class _Option(NamedTuple):
    """An option among the arguments that has a value.

    Args:
        name: of its parameter.
        value: a number, or anything else.
        place: index of the argument; before: what stands before the value there.
    """

    name: str
    value: Any
    place: int
    before: str


def for_command(
    arguments: Sequence[str], file: str, metric: PrintedMetric | None = None
) -> tuple[str, str]:
    """A configuration that tunes the numbers of a command, and the command with braces.

    Args:
        arguments: such as `python train.py --lr 0.001 --width=64`.
        file: of the configuration.
        metric: the goal, as the command prints it; None for a guess.

    Raises:
        UsageError: no option of the command is a number that can be tuned.
    """
    options = _options(arguments)
    numbers = [one for one in options if type(one.value) in (int, float)]
    entries = {n.name: entry for n in numbers if (entry := _entry(n.name, n.value)) is not None}
    if not entries:
        raise UsageError(
            "no option of the command is a number that can be tuned: give some, "
            "such as -- python train.py --lr 0.001 --width 64"
        )
    words = [argument.replace("{", "{{").replace("}", "}}") for argument in arguments]
    for number in numbers:
        if number.name in entries or number.name == "seed":  # each trial has one of its own
            words[number.place] = f"{number.before}{{{number.name}}}"
    lengths = [n.value for n in numbers if _is_any(n.name, LENGTHS)]
    length = f"\nmax_steps: {lengths[0]}  # the last step that a trial reports\n" if lengths else ""
    command = shell_line(words)
    text = PREAMBLE.format(
        program=script(arguments),
        file=file,
        command=command,
        name=name_of(file),
        goal=_goal(metric),
        space="\n".join(f"  {name}: {entry}" for name, entry in entries.items()),
        left=_left(arguments, options, entries),
        length=length,
    )
    return text + TAIL, command


def _goal(metric: PrintedMetric | None) -> str:
    """The part of a configuration that names the goal and how it is reported."""
    if metric is not None and not metric.pattern:
        return REPORTED.format(goal=metric.goal)
    one = metric or GUESS
    found = f"Found in: {one.line[:MAX_SHOWN]}" if metric else "This is a guess: adapt it."
    patterns = {one.name: one.pattern, **({"step": one.step} if one.step else {})}
    quoted = {name: pattern.replace("'", "''") for name, pattern in patterns.items()}
    lines = "\n".join(f"  {name}: '{pattern}'" for name, pattern in quoted.items())
    return REPORTS.format(why=printable(found), goal=one.goal, patterns=lines)


def _left(arguments: Sequence[str], options: Sequence[_Option], entries: Mapping[str, str]) -> str:
    """A comment about what is not tuned, though nothing in its name says why."""
    known = (*NOT_TUNED, *LENGTHS)
    left = [
        f"{one.name} {one.value!r:.40}"
        for one in options
        if one.name not in entries and not _is_any(one.name, known)
    ]
    left += [pair for pair in map(" ".join, pairwise(arguments)) if _SHORT.fullmatch(pair)]
    if not left:
        return ""
    how = "write NAME: [VALUE, ...] here, and {NAME} in the command"
    return f"\n  # not tuned: {', '.join(left)}\n  # to tune one, {how}"


def script(arguments: Sequence[str]) -> str:
    """The word that names a command best: its script, or the last one before its options."""
    begin = _begin(arguments)
    options = (i for i, word in enumerate(arguments) if word.startswith("--") or "=" in word)
    first = begin + 1 if begin else next(options, len(arguments))
    return arguments[max(0, first - 1)]


def _begin(arguments: Sequence[str]) -> int:
    """The index of a script, before which the options of an interpreter or launcher stand."""
    scripts = (i for i, word in enumerate(arguments) if word.endswith((".py", ".sh")))
    return next(scripts, 0)


def file_of(arguments: Sequence[str]) -> str:
    """A name for the configuration of a command."""
    stem = PurePath(script(arguments)).stem
    return f"{stem if NAME.fullmatch(stem) else 'sweep'}.yaml"


def _options(arguments: Sequence[str]) -> list[_Option]:
    """The options with a value behind a script: `--key value`, `--key=value` and `key=value`."""
    found: dict[str, _Option] = {}
    begin = _begin(arguments)
    for place, argument in enumerate(arguments):
        if place <= begin and begin:
            continue
        joined = _JOINED.fullmatch(argument)
        before, text = "", argument
        if joined:
            key, text = joined[1], joined[2]
            before = f"{key}="
        elif place and arguments[place - 1].startswith("--") and "=" not in arguments[place - 1]:
            key = arguments[place - 1]
        else:
            continue
        name = key.lstrip("-").replace("-", "_")
        try:
            value = plain_scalar(text)
        except ValueError:
            continue
        is_value = not isinstance(value, str) or not value.startswith("-")
        if is_value and all(part.isidentifier() for part in name.split(".")):
            found[name] = _Option(name, value, place, before)
    return list(found.values())


def _entry(name: str, value: int | float) -> str | None:
    """The entry of a parameter in `space:`; None if it is not tuned."""
    if _is_any(name, (*NOT_TUNED, *LENGTHS)):
        return None
    if _is_any(name, SHARES) and 0 <= value < 1:
        return f"{{low: 0.0, high: 0.99, default: {float(value)!r}}}"
    is_rate = value <= MAX_RATE and any(map(RATES.fullmatch, re.split(r"[._-]", name.lower())))
    if value == 0 and is_rate:
        return f"{{choices: {list(ZERO_RATE)}, ordered: true, default: 0.0}}"
    if value <= 0:
        return None
    if isinstance(value, float) or is_rate:
        low, high = (float(f"{bound:g}") for bound in (value / FACTOR, value * FACTOR))
        return f"{{low: {low!r}, high: {high!r}, log: true, default: {float(value)!r}}}"
    if value >= POWERS_FROM and value & (value - 1) == 0:
        powers = ", ".join(str(value * 2**n // TIMES) for n in range(2 * TIMES.bit_length() - 1))
        return f"{{choices: [{powers}], ordered: true, default: {value}}}"
    low, high = max(1, value // TIMES), value * TIMES
    log = ", log: true" if value >= POWERS_FROM else ""
    return f"{{low: {low}, high: {high}, type: int{log}, default: {value}}}"


def _is_any(name: str, words: Sequence[str]) -> bool:
    return any(word in name.lower() for word in words)
