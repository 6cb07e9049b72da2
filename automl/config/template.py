"""Writes a first configuration: for a command, or of a sweep of W&B.

What is read is read as data: nothing in it is run.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from automl.core import parse_goals
from automl.core.arguments import NAME
from automl.core.text import printable, shell_line
from automl.errors import UsageError
from search_spaces.space import read_space
from search_spaces.values import show
from workers.command.goal_proposals import PrintedMetric

from .source import WrittenConfig, plain_scalar

TAIL: Final = """
# The sweep ends at the first of these: trials, time, worker_time (summed over workers), target.
budget:
  trials: 20
  time: 1h

# suggester: bayes, tpe, sobol, random... A stopper (asha, median, curve) ends bad trials early.
suggester: bayes
stopper: none

# As many trials run at once as the machine has room for, or as many as `workers:` says.
# Of one worker; `gpus` is 1 if this machine has GPUs. Add `memory: 4GB` to limit a rank's memory.
resources: {cpus: 1}
seed: 0
"""
FOR_COMMAND: Final = """\
# Tune {program}
#
#   automl sweep --dry-run {file}
#   automl sweep {file}
#
# The first line checks it and shows what would be tuned; the second runs it. How a command can
# report in other ways, pause and go on: docs/guides/script.md.

name: {name}

# What each trial runs: {{NAME}} in braces becomes the value of that parameter.
command: {command}

# The metric that counts. {why}
goals: {goal}
{reports}
# What is tuned, by these rules: a number from a tenth to ten times its value, logarithmic; a count
# from a quarter to four times; a dropout and the like from 0 to 1.
space:
{space}
{length}"""
REPORTS: Final = """\
# How the command prints it: RE2 expressions with one group, searched in each line of its output.
reports:
{patterns}
"""
# A rate is real and tuned on a logarithmic scale, even if it is written as `20`.
RATES: Final = re.compile(
    "lr|rate|decay|wd|l1|l2|alpha|gamma|lambda|lam|reg|penalty|eta|eps|epsilon|tol|temperature|c|"
    "clip"
)
MAX_RATE: Final = 1000  # `sample_rate 16000` is none
NOT_TUNED: Final = ("seed", "port", "device", "gpu", "worker", "thread", "rank", "verbose")
LENGTHS: Final = ("epoch", "step", "iteration", "updates", "rounds")
SHARES: Final = ("dropout", "momentum", "beta", "smoothing", "ratio", "fraction", "prob")
MAX_SHOWN: Final = 150  # characters of a line of output
FACTOR: Final = 10  # a positive number is tuned from a tenth to ten times its value
TIMES: Final = 4  # a count from a quarter to four times
LOG_FROM: Final = 8  # a count from here on is tuned on a logarithmic scale
# Programs and modules that start the ranks of a script.
LAUNCHERS: Final = (
    *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
    *("accelerate", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner"),
)
LAUNCHED: Final = """\
# The options of {launcher} are not tuned. Trials that run at once need ports of their own:
# automl gives them if it starts the ranks, by `ranks: N` here and a command without {launcher}.
"""
_JOINED: Final = re.compile(r"((?:--)?[A-Za-z][\w.-]*)=(.+)")


def name_of(file: str) -> str:
    """A name for the sweep, from the file of its configuration."""
    stem = Path(file).stem
    return stem if NAME.fullmatch(stem) else "sweep"


def for_command(arguments: Sequence[str], file: str, metric: PrintedMetric | None = None) -> str:
    """A configuration that tunes the numbers of a command.

    Args:
        arguments: such as `python train.py --lr 0.001 --width=64`.
        file: of the configuration.
        metric: the goal, as the command prints it; None for a guess.

    Raises:
        UsageError: no option of the command is a number that can be tuned.
    """
    options = _options(arguments)
    numbers = {n: one for n, one in options.items() if type(one[0]) in (int, float)}
    ranges = {name: _range_around(name, value) for name, (value, *_) in numbers.items()}
    entries = {name: entry for name, entry in ranges.items() if entry is not None}
    if not entries:
        raise UsageError(
            "no option of the command is a number that can be tuned: give some, "
            "such as -- python train.py --lr 0.001 --width 64"
        )
    words = [argument.replace("{", "{{").replace("}", "}}") for argument in arguments]
    for name, (_, place, before) in numbers.items():
        if name in entries or name == "seed":  # each trial has one of its own
            words[place] = f"{before}{{{name}}}"
    lengths = [value for name, (value, *_) in numbers.items() if _is_any(name, LENGTHS)]
    space = [f"  {name}: {entry}" for name, entry in entries.items()]
    known = (*NOT_TUNED, *LENGTHS)
    others = [name for name in options if name not in entries and not _is_any(name, known)]
    if others:  # though nothing in the name says why
        said = ", ".join(f"{name} {options[name][0]!r:.40}" for name in others)
        how = "write NAME: [VALUE, ...] here, and {NAME} in the command"
        space += [f"  # not tuned: {said}", f"  # to tune one, {how}"]
    text = FOR_COMMAND.format(
        program=arguments[_script(arguments)],
        file=file,
        command=json.dumps(words, ensure_ascii=False),
        name=name_of(file),
        space="\n".join(space),
        length=f"max_steps: {lengths[0]}  # the last step that a trial reports\n"
        if lengths
        else "",
        **_goal(metric),
    )
    launchers = _launchers(arguments[: _script(arguments)])
    return text + TAIL + "".join(LAUNCHED.format(launcher=name) for name in launchers[:1])


def _goal(metric: PrintedMetric | None) -> Mapping[str, str]:
    """The parts of a configuration that name the goal, and how it is reported."""
    if metric is None:
        return {"goal": "minimize val_loss", "why": "This is a guess: adapt it.", "reports": ""}
    patterns = {metric.name: metric.pattern, **({"step": metric.step} if metric.step else {})}
    quoted = {name: pattern.replace("'", "''") for name, pattern in patterns.items()}
    lines = "\n".join(f"  {name}: '{pattern}'" for name, pattern in quoted.items())
    why = printable(f"Found in: {metric.line[:MAX_SHOWN]}")
    return {"goal": metric.goal, "why": why, "reports": REPORTS.format(patterns=lines)}


def _script(arguments: Sequence[str]) -> int:
    """The index of a script, or a launcher's module: options of others stand before it."""
    scripts = (
        i
        for i, (before, word) in enumerate(pairwise(["", *arguments]))
        if word.endswith((".py", ".sh")) or (before == "-m" and _launchers(arguments[: i - 1]))
    )
    options = (i for i, word in enumerate(arguments) if word.startswith("--") or "=" in word)
    return next(scripts, max(0, next(options, len(arguments)) - 1))


def _launchers(arguments: Sequence[str]) -> list[str]:
    return [name for name in (Path(word).name for word in arguments) if name in LAUNCHERS]


def file_of(arguments: Sequence[str]) -> str:
    """A name for the configuration of a command."""
    return f"{name_of(arguments[_script(arguments)])}.yaml"


def _options(arguments: Sequence[str]) -> dict[str, tuple[Any, int, str]]:
    """The options with a value behind a script: `--key value`, `--key=value` and `key=value`.

    Returns:
        By name: the value, the index of its argument, and what stands before it there.
    """
    found: dict[str, tuple[Any, int, str]] = {}
    for place in range(_script(arguments) + 1, len(arguments)):
        key, text, before = arguments[place - 1], arguments[place], ""
        if joined := _JOINED.fullmatch(text):
            key, text = joined[1], joined[2]
            before = f"{key}="
        elif not key.startswith("--") or "=" in key:
            continue
        name = key.lstrip("-").replace("-", "_")
        try:
            value = plain_scalar(text)
        except ValueError:
            continue
        is_value = not isinstance(value, str) or not value.startswith("-")
        if is_value and all(part.isidentifier() for part in name.split(".")):
            found[name] = value, place, before
    return found


def _range_around(name: str, value: int | float) -> str | None:
    """The entry of a parameter in `space:`; None if it is not tuned."""
    if _is_any(name, (*NOT_TUNED, *LENGTHS)):
        return None
    if _is_any(name, SHARES) and 0 <= value < 1:
        return f"{{low: 0.0, high: 0.99, default: {float(value)!r}}}"
    if value <= 0:
        return None
    is_rate = value <= MAX_RATE and any(map(RATES.fullmatch, re.split(r"[._-]", name.lower())))
    if isinstance(value, float) or is_rate:
        low, high = (float(f"{bound:g}") for bound in (value / FACTOR, value * FACTOR))
        return f"{{low: {low!r}, high: {high!r}, log: true, default: {float(value)!r}}}"
    log = ", log: true" if value >= LOG_FROM else ""
    low, high = max(1, value // TIMES), value * TIMES
    return f"{{low: {low}, high: {high}, type: int{log}, default: {value}}}"


def _is_any(name: str, words: Sequence[str]) -> bool:
    return any(word in name.lower() for word in words)


_READ: Final = {
    *("program", "method", "metric", "parameters", "run_cap", "command"),
    *("name", "project", "entity", "description"),
}


@dataclass
class WandbSweep:
    """What a sweep says, in the terms of this project.

    Args:
        space: by parameter an entry of `space:`, as plain data.
        settings: other keys of a configuration.
        command: of the program, as a shell takes it.
        notes: what was not carried over, or not exactly.
        as_json: whether the program reads its parameters from a JSON file.
    """

    space: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    notes: list[str] = field(default_factory=list)
    as_json: bool = False

    def text(self, source: str, file: str) -> str:
        """A configuration with comments; `source` is the sweep's file, `file` its own."""
        lines = [
            f"# From {printable(source)}, a sweep of Weights & Biases",
            f"#   automl sweep {file}",
            "# The program prints each metric as `NAME: VALUE`, or writes JSON lines to the file",
            "# $AUTOML_REPORTS; `reports: {NAME: REGEX}` finds it in other output.",
            *(f"# Not carried over exactly: {printable(note)}" for note in self.notes),
            f"name: {name_of(file)}",
            f"command: {json.dumps(shlex.split(self.command), ensure_ascii=False)}",
            *(f"{key}: {json.dumps(value)}" for key, value in self.settings.items()),
            "space:",
            *(f"  {name}: {json.dumps(entry)}" for name, entry in self.space.items()),
        ]
        return "\n".join(lines) + "\n"


def read_wandb(path: Path) -> WandbSweep:
    """The sweep in a file.

    Raises:
        UsageError: the file cannot be read, is no such sweep, or has nothing that can be tuned.
    """
    source = WrittenConfig.of_file(path)
    source.raise_any()
    data = source.data
    if not isinstance(data, Mapping) or not isinstance(data.get("parameters"), Mapping):
        raise UsageError(
            f"--from: {path} is not recognised: it must be the YAML file of `wandb sweep`, which "
            "has `parameters:`"
        )
    found = WandbSweep(as_json="${args_json_file}" in _words(data))
    _read_parameters(found, data["parameters"], "")
    _read_settings(found, data)
    parse_goals(found.settings["goals"])
    if not found.space:
        raise UsageError(
            "\n  ".join([f"--from: nothing in {path} can be tuned here", *found.notes])
        )
    found.command = _command(found, data)
    found.notes += [
        f"{name} is not carried over: {show(value)}"
        for name, value in data.items()
        if name not in _READ
    ]
    return found


def _read_parameters(found: WandbSweep, given: Mapping[str, Any], outer: str) -> None:
    for key, entry in given.items():
        name = f"{outer}{key}"
        if isinstance(entry, Mapping) and isinstance(entry.get("parameters"), Mapping):
            _read_parameters(found, entry["parameters"], f"{name}.")  # --outer.inner of the script
            continue
        try:
            value = _entry(found, name, entry)
            read_space({name: value})
        except (ValueError, TypeError, OverflowError) as error:
            found.notes.append(f"{name} is left out: {error}")
        else:
            found.space[name] = value


def _entry(found: WandbSweep, name: str, entry: Any) -> Any:
    """The entry of `space:` for a parameter; raises ValueError and the like if it has none."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"it must have keys such as values, got {show(entry)}")
    if "value" in entry or "values" in entry:
        if entry.get("probabilities") is not None:
            found.notes.append(f"{name}: probabilities are left out, all values are alike")
        values = entry.get("values", [entry.get("value")])
        if found.as_json or not any(isinstance(one, bool) for one in values):
            return values
        found.notes.append(f"{name}: booleans are the texts True and False, as in W&B")
        return [str(one) if isinstance(one, bool) else one for one in values]
    low: Any = entry.get("min")
    high: Any = entry.get("max")
    are_whole = isinstance(low, int) and isinstance(high, int)
    kind = str(entry.get("distribution") or ("int_uniform" if are_whole else "uniform"))
    base, log = kind.removeprefix("q_"), "log" in kind
    if base == "log_uniform":  # the bounds are exponents of e
        low, high = (float(f"{math.exp(end):.6g}") for end in (low, high))
    elif base not in ("uniform", "int_uniform", "log_uniform_values"):
        raise ValueError(f"no range has the distribution {show(kind)}")
    step = entry.get("q", 1) if kind.startswith("q_") else 0
    is_whole = base == "int_uniform" or (step >= 1 and step == int(step))
    if step > 0 and not log:
        low, high = (float(f"{round(end / step) * step:.12g}") for end in (low, high))
    low, high = (math.ceil(low), math.floor(high)) if is_whole else (float(low), float(high))
    more: dict[str, Any] = {"type": "int"} if is_whole else {}
    more |= {"log": True} if log else {"step": step} if step > is_whole else {}
    return {"low": low, "high": high, **more}


def _read_settings(found: WandbSweep, data: Mapping[str, Any]) -> None:
    metric = data.get("metric")
    metric = metric if isinstance(metric, Mapping) else {}
    if not metric.get("name"):
        found.notes.append("the goal is a guess (minimize loss): the file names no metric")
    verb = "maximize" if metric.get("goal") == "maximize" else "minimize"
    settings = found.settings
    settings |= {
        "goals": [f"{verb} {metric.get('name') or 'loss'}"],
        "budget": {"trials": data.get("run_cap") or 20},
        "suggester": "random" if data.get("method") == "random" else "bayes",
    }
    if metric.get("target") is not None:
        settings["budget"]["target"] = metric["target"]
    if data.get("method") not in ("bayes", "random", None):
        found.notes.append(f"method: {data['method']} has no counterpart: bayes is used")


def _words(data: Mapping[str, Any]) -> list[Any]:
    words = data.get("command")
    return words if isinstance(words, list) else ["${interpreter}", "${program}", "${args}"]


def _command(found: WandbSweep, data: Mapping[str, Any]) -> str:
    words = _words(data)
    if "${args_no_boolean_flags}" in words:
        found.notes.append("booleans are --NAME=True and --NAME=False, not flags without a value")
    known: dict[str, list[str]] = {
        "${env}": [],
        "${interpreter}": ["python"] if "program" in data else [],
        "${program}": [str(data.get("program") or "COMMAND")],
        "${args}": ["{params}"],
        "${args_no_boolean_flags}": ["{params}"],
        "${args_no_hyphens}": [f"{name}={{{name}}}" for name in found.space],
        "${args_json_file}": ["{config}"],
    }
    found.notes += [
        f"the command has {word}, which means nothing here"
        for word in map(str, words)
        if word.startswith("${") and word not in known
    ]
    return shell_line([text for word in words for text in known.get(str(word), [str(word)])])
