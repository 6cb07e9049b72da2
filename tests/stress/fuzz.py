"""Hostile configurations, overrides, goals, constraints and durations.

    python tests/stress/fuzz.py                100,000 inputs
    python tests/stress/fuzz.py --quick        2,000 inputs
    python tests/stress/fuzz.py --first 41     from this input on

Each input must be accepted, or refused with one clear error. Other exceptions, inputs that take
over a second of CPU time, very long messages, and files that are left behind count as failures:
the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automl.config import load
from automl.core.arguments import parse_duration
from automl.core.goals import parse_constraints, parse_goals
from automl.errors import UsageError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware

ROOT = Path(__file__).parents[2]
INPUTS = 100_000
QUICK_INPUTS = 2_000
HARDWARE = Hardware(num_cpus=2, memory_bytes=8 << 30)
SEEDS = [file.read_text() for file in sorted((ROOT / "configs").glob("*.yaml"))]
TOY = """name: toy
space:
  x: {low: 0.0, high: 1.0, default: 0.5}
  k: [a, b]
  n: {low: 1, high: 9, log: true, when: {k: a}}
goals: [minimize loss, maximize b within 10m]
constraints: ['n * x <= 4']
budget: {trials: 3}
"""
SEEDS += [TOY] * 6
WORDS = """: - [ ] { } , & * ! | > ' " # % @ ` ? ~ --- ... !!python/object/apply:os.system &a *a
<<: null true no .nan .inf -.inf 1e999 010 0x1F 1_000 1:30 9999999999999999999999 -0 1e-3 2026-01-01
low high log when affects type choices default ordered name workload data fixed space goals
constraints budget suggester stopper workers resources store seed trials time minimize maximize
within auto translation bayes ../../x /etc/passwd os.system __import__ __class__ lambda eval
9**9**9 x/0 and or not in if else == <= % ** // min max abs ( ) \u202e \ufeff \u2028 \x00
\ud800 \U0001f600 \\ \t \r 10m -5s 1h30m http://[ postgresql://a:b@c/d"""
TOKENS = [
    *WORDS.split(),
    "\n",
    "\n  ",
    " ",
    "",
    "\0",
    "\x1b[2J",
    "é",
    "a" * 5000,
    "[" * 200,
    "(" * 300,
]


def mutated(text: str, rng: random.Random) -> str:
    """The text with pieces cut out, repeated, replaced and shuffled."""
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3, 8])):
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.choice([0, 0, 1, 1, 2, 3, 10, 40]))
        how = rng.randrange(5)
        if how == 0:
            text = text[:a] + text[b:]
        elif how == 1:
            text = text[:a] + rng.choice(TOKENS) + text[b:]
        elif how == 2:
            text = text[:a] + text[a:b] * rng.choice([2, 50]) + text[b:]
        elif how == 3:
            text = (
                text[:a] + chr(rng.choice([rng.randrange(256), rng.randrange(0x110000)])) + text[b:]
            )
        else:
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines)
            text = "".join(lines)
    return text


def of_tokens(rng: random.Random) -> str:
    return rng.choice(["", " "]).join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 30)))


def configuration(rng: random.Random, folder: Path) -> None:
    text = mutated(rng.choice(SEEDS), rng) if rng.random() < 0.9 else of_tokens(rng)
    file = folder / "c.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    load(file, hardware=HARDWARE, objective=None)


def override(rng: random.Random, folder: Path) -> None:
    keys = [
        "space.x.low",
        "space.k",
        "budget.trials",
        "budget.time",
        "goals",
        "name",
        "seed",
        "space.x",
        "fixed.y",
        "store",
    ]
    key = rng.choice(keys) if rng.random() < 0.7 else mutated(rng.choice(keys), rng)
    values = ["{low: 0, high: 1}", "[a, b]", "3", "0.25", "10m", "minimize loss", "toy-2", "auto"]
    value = of_tokens(rng) if rng.random() < 0.3 else rng.choice(values)
    text = f"{key}={mutated(value, rng) if rng.random() < 0.5 else value}"
    file = folder / "o.yaml"
    file.write_text(SEEDS[-1])
    load(
        file,
        [text, of_tokens(rng)][: rng.choice([1, 1, 1, 1, 1, 2])],
        hardware=HARDWARE,
        objective=None,
    )


def goal(rng: random.Random, folder: Path) -> None:
    known = [
        "minimize loss",
        "maximize bleu within 10m",
        "peak_memory_bytes <= 8e9",
        "1h30m",
        "90s",
    ]
    text = mutated(rng.choice(known), rng) if rng.random() < 0.8 else of_tokens(rng)
    parse: list[Callable[[Any], Any]] = [parse_goals, parse_constraints, parse_duration]
    rng.choice(parse)(text)


def constraint(rng: random.Random, folder: Path) -> None:
    known = [
        "width % num_heads == 0 and dropout < 0.5",
        "x * y <= 512",
        "min(x, y) in (1, 2)",
        "not x == 'a' or y ** 2 > 3",
    ]
    text = mutated(rng.choice(known), rng) if rng.random() < 0.8 else of_tokens(rng)
    made = Expression(text)
    values = [0, 1, -1, 2**62, 1e308, 5e-324, "a", True, 0.5]
    made.evaluate({name: rng.choice(values) for name in made.names})


KINDS = {
    "configuration": configuration,
    "override": override,
    "goal": goal,
    "constraint": constraint,
}


class Hang(BaseException):
    """An input has taken too much CPU time."""


def interrupt(*_: object) -> None:
    raise Hang


def attempt(kind: str, seed: int, folder: Path) -> str:
    """Try one input: "taken", "refused", "hang", a bad message, or a traceback."""
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    try:
        KINDS[kind](random.Random(seed), folder)
    except UsageError as error:
        text = str(error)
        return (
            "refused"
            if text and len(text) < 20_000 and "Traceback" not in text
            else f"message {text[:200]!r}"
        )
    except Hang:
        return "hang"
    except BaseException:  # this is what the fuzzing looks for
        return traceback.format_exc()[-500:]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return "taken"


def run(count: int, first: int) -> list[str]:
    """Try the inputs from number `first` on; what is wrong with them."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    signal.signal(signal.SIGVTALRM, interrupt)
    with tempfile.TemporaryDirectory(prefix="automl-fuzz-") as name:
        folder, work = Path(name) / "in", Path(name) / "work"
        folder.mkdir()
        work.mkdir()
        os.chdir(work)
        for text in SEEDS:  # imports take longer than a second
            (folder / "c.yaml").write_text(text)
            load(folder / "c.yaml", hardware=HARDWARE, objective=None)
        for seed in range(first, first + count):
            kind = list(KINDS)[seed % len(KINDS)]
            outcome = attempt(kind, seed, folder)
            word = outcome if outcome in ("taken", "refused") else "wrong"
            found[f"{kind} {word}"] += 1
            if word == "wrong":
                wrong.append(f"{kind} seed {seed}: {outcome}")
        files = {str(path.relative_to(name)) for path in Path(name).rglob("*") if path.is_file()}
        wrong += [f"the file {file} is left" for file in files - {"in/c.yaml", "in/o.yaml"}]
        os.chdir("/")
    print(*(f"{what}: {times}" for what, times in sorted(found.items())), *wrong, sep="\n")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="2,000 inputs")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    given = parser.parse_args()
    return 1 if run(QUICK_INPUTS if given.quick else INPUTS, given.first) else 0


if __name__ == "__main__":
    sys.exit(main())
