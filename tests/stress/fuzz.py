"""Hostile configurations, overrides, goals, constraints and durations.

    python tests/stress/fuzz.py                100,000 inputs
    python tests/stress/fuzz.py --quick        2,000 inputs
    python tests/stress/fuzz.py --first 41     from this input on

Each input must be accepted, or refused with one clear error. Other exceptions, inputs that take
over a second of CPU time, very long messages, and files that are left behind count as failures:
the exit status is 1.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from automl.config import load
from automl.core import parse_constraints, parse_duration, parse_goals
from automl.errors import UsageError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware

HARDWARE = Hardware(num_cpus=2, memory_bytes=8 << 30)
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
TOY = """name: toy
space:
  x: {low: 0.0, high: 1.0, default: 0.5}
  k: [a, b]
  n: {low: 1, high: 9, log: true, when: {k: a}}
goals: [minimize loss, maximize b within 10m]
constraints: ['n * x <= 4']
budget: {trials: 3}
"""
SEEDS = [*(file.read_text() for file in CONFIGS), *[TOY] * 6]
KEYS = ["space.x.low", "space.k", "budget.trials", "budget.time", "goals", "name", "seed", "store"]
VALUES = ["{low: 0, high: 1}", "[a, b]", "3", "0.25", "10m", "minimize loss", "toy-2", "auto"]
GOALS = ["minimize loss", "maximize bleu within 10m", "peak_memory_bytes <= 8e9", "1h30m", "90s"]
RULES = [
    "width % heads == 0 and dropout < 0.5",
    "x * y <= 512",
    "not x == 'a' or min(y, x) ** 2 > 3",
]
WORDS = r""": - [ ] { } , & * ! | > ' " # % @ ` ? ~ --- ... !!python/object/apply:os.system &a *a
<<: null true no .nan .inf -.inf 1e999 010 0x1F 1_000 1:30 9999999999999999999999 -0 1e-3 2026-01-01
low high log when affects type choices default ordered name workload data fixed space goals
constraints budget suggester stopper workers resources store seed trials time minimize maximize
within auto translation bayes ../../x /etc/passwd os.system __import__ __class__ lambda eval
9**9**9 x/0 and or not in if else == <= % ** // min max abs ( ) 10m -5s 1h30m http://[
postgresql://a:b@c/d \\ \t"""
ODD = [
    "\n",
    "\n  ",
    " ",
    "",
    "\0",
    "\x1b[2J",
    "\u202e\ufeff\u2028",
    "\ud800",
    "a" * 5000,
    "[" * 200,
]
TOKENS = [*WORDS.split(), *ODD, "(" * 300]


def mutated(text: str, rng: random.Random) -> str:
    """The text with pieces cut out, repeated, replaced and shuffled, or nothing but tokens."""
    if rng.random() < 0.1:
        return " ".join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 30)))
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3, 8])):
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.choice([0, 0, 1, 1, 2, 3, 10, 40]))
        odd = chr(rng.choice([rng.randrange(256), rng.randrange(0x110000)]))
        middle = rng.choice(["", rng.choice(TOKENS), text[a:b] * rng.choice([2, 50]), odd])
        text = text[:a] + middle + text[b:]
    lines = text.splitlines(keepends=True)
    rng.shuffle(lines if rng.random() < 0.1 else [])
    return "".join(lines)


def attempt(seed: int, file: Path) -> None:
    """Try one input."""
    rng = random.Random(seed)
    if seed % 4 == 0:
        file.write_bytes(mutated(rng.choice(SEEDS), rng).encode("utf-8", "surrogatepass"))
        load(file, hardware=HARDWARE, objective=None)
    elif seed % 4 == 1:
        file.write_text(TOY)
        given = f"{rng.choice(KEYS)}={rng.choice(VALUES)}"
        load(file, [mutated(given, rng)], hardware=HARDWARE, objective=None)
    elif seed % 4 == 2:
        parsers: list[Any] = [parse_goals, parse_constraints, parse_duration]
        rng.choice(parsers)(mutated(rng.choice(GOALS), rng))
    else:
        made = Expression(mutated(rng.choice(RULES), rng))
        values = [0, 1, -1, 2**62, 1e308, 5e-324, "a", True, 0.5]
        made.evaluate({name: rng.choice(values) for name in made.names})


def outcome(seed: int, file: Path) -> str:
    """What an input leads to: "taken", "refused", or a bad message or a traceback."""
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    try:
        attempt(seed, file)
    except UsageError as error:
        text = str(error)
        is_clear = text and len(text) < 20_000 and "Traceback" not in text
        return "refused" if is_clear else f"message {text[:200]!r}"
    except BaseException:  # what the fuzzing looks for; KeyboardInterrupt: a second is over
        return traceback.format_exc()[-500:]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return "taken"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="2,000 inputs")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    given = parser.parse_args()
    signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    found, wrong = Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="automl-fuzz-") as name:
        os.chdir(name)
        file = Path(name, "c.yaml")
        for text in SEEDS:  # imports take longer than a second
            file.write_text(text)
            load(file, hardware=HARDWARE, objective=None)
        for seed in range(given.first, given.first + (2_000 if given.quick else 100_000)):
            ended = outcome(seed, file)
            found[ended if ended in ("taken", "refused") else "wrong"] += 1
            if ended not in ("taken", "refused"):
                wrong.append(f"seed {seed}: {ended}")
        wrong += [f"{one} is left" for one in Path(name).rglob("*") if one != file]
        os.chdir("/")
    print(dict(found), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
