"""What somebody who comes from Optuna notices in the first hour, beside Optuna in the same run.

    python benchmarks/first_hour.py [--repeats N]        measure and store the rows
    python benchmarks/first_hour.py --quick [--check]    fewer rounds and seeds
    python benchmarks/first_hour.py --table [--check]    the stored rows

- start: seconds from the start of a process to its first trial, two workers, in a script that
  imports nothing, scikit-learn or torch. `optuna` keeps its study in memory, `optuna, stored` in
  SQLite, as our sweeps are.
- readme: wall seconds and best loss of the example of README, 20 trials, two workers.

Contestants run in turn, so that other work on the machine slows all of them alike. Each ratio is
the median over the rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.paired import interleaved, ratios
from benchmarks.control.first_hour_scripts import (
    NEEDS_NO_TORCH,
    README,
    README_AUTOML,
    README_OPTUNA,
    START_AUTOML,
    START_OPTUNA,
    USES_SKLEARN,
    USES_TORCH,
)

ROWS: Final = store.RESULTS / "first_hour.jsonl"
MAX_START: Final = 1.3  # times Optuna's seconds
SCRIPTS: Final = {
    "start, imports nothing": NEEDS_NO_TORCH,
    "start, imports scikit-learn": USES_SKLEARN,
    "start, imports torch": USES_TORCH,
}
MAX_README: Final = 1.5


def script(text: str, folder: str, **values: Any) -> tuple[float, list[str]]:
    """Run a script with these constants; the time at which it began, and its last line's words."""
    path = Path(folder, "script.py")
    path.write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()) + text)
    # Compiled files are kept, as they are after an installation.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.time()
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the script failed: {done.stderr[-2000:]}")
    return began, done.stdout.split("\n")[-2].split() if done.stdout else []


def start(contestant: str, value: str) -> float:
    """Seconds from the start of a process to its first trial.

    Args:
        contestant: a dispatcher, "optuna" or "optuna, stored".
        value: the part of the script that computes.
    """
    with tempfile.TemporaryDirectory() as folder:
        if contestant.startswith("optuna"):
            storage = f"sqlite:///{folder}/study.db" if contestant != "optuna" else None
            began, words = script(value + START_OPTUNA, folder, STORAGE=storage)
            return float(words[1]) - began
        mark = Path(folder, "mark")
        values = {"MARK": str(mark), "STORE": str(Path(folder, "store"))}
        began, _ = script(value + START_AUTOML, folder, DISPATCHER=contestant, **values)
        return float(mark.read_text()) - began


def starts(rounds: int) -> list[store.Row]:
    """The starting times as ratios to Optuna's."""
    rows = []
    for measure, value in SCRIPTS.items():
        names = ("optuna", "optuna, stored", "inline", "local")
        contestants: dict[str, Callable[[], float]] = {
            name: partial(start, name, value) for name in names
        }
        taken = interleaved(contestants, rounds)
        found = ratios(taken, "optuna")
        rows += [
            {
                "measure": measure,
                "contestant": name,
                "seconds": round(statistics.median(taken[name]), 3),
                "ratio": round(found[name], 3),
                "rounds": rounds,
            }
            for name in contestants
        ]
    return rows


def readme(seeds: int) -> list[store.Row]:
    """Wall seconds and best losses of README's example."""
    losses: dict[str, list[float]] = {"optuna": [], "local": []}

    def run(name: str, text: str, folder: str) -> float:
        seed = len(losses[name])
        began, words = script(README + text, folder, SEED=seed, STORE=f"{folder}/{name}{seed}")
        losses[name].append(float(words[-1]))
        return time.time() - began

    with tempfile.TemporaryDirectory() as folder:
        taken = interleaved(
            {
                "optuna": partial(run, "optuna", README_OPTUNA, folder),
                "local": partial(run, "local", README_AUTOML, folder),
            },
            seeds,
        )
    found = ratios(taken, "optuna")
    return [
        {
            "measure": "readme",
            "contestant": name,
            "seconds": round(statistics.median(taken[name]), 2),
            "ratio": round(found[name], 3),
            "loss": statistics.median(losses[name]),
            "seeds": seeds,
        }
        for name in losses
    ]


def claims(rows: dict[tuple[Any, ...], store.Row]) -> list[Claim]:
    """Every limit beside what was measured."""

    def value(measure: str, contestant: str, key: str) -> float | None:
        return rows.get((measure, contestant), {}).get(key)

    made = [
        at_most(f"{name}: {measure}, times Optuna's", value(measure, name, "ratio"), MAX_START)
        for measure in SCRIPTS
        for name in ("inline", "local")
    ]
    ratio = value("readme", "local", "ratio")
    made.append(at_most("README's example: wall time, times Optuna's", ratio, MAX_README))
    pair = value("readme", "local", "loss"), value("readme", "optuna", "loss")
    made.append(at_most("README's example: median of the best losses", *pair, "Optuna's"))
    return made


def main() -> int:
    """Measure, store and print the rows."""
    parser = benchmark_parser(__doc__, "3 rounds")
    parser.add_argument("--repeats", type=int, default=10, help="rounds and seeds")
    given = parser.parse_args()
    rows = store.load(ROWS, "measure", "contestant") if given.table else {}
    rounds = 3 if given.quick else given.repeats
    measures: list[Callable[[], list[store.Row]]] = [
        partial(starts, rounds),
        partial(readme, rounds),
    ]
    for measure in [] if given.table else measures:
        for row in measure():
            rows[row["measure"], row["contestant"]] = row
            if not given.quick:
                store.append(ROWS, row)
            print(_line(row), flush=True)
    if given.table:
        print("\n".join(map(_line, rows.values())))
    return conclude(claims(rows)) if given.check else 0


def _line(row: store.Row) -> str:
    hidden = ("measure", "contestant", "machine")
    figures = {key: value for key, value in row.items() if key not in hidden}
    return f"{row['measure']}: {row['contestant']}: " + ", ".join(
        f"{key} {value:.4g}" for key, value in figures.items()
    )


if __name__ == "__main__":
    sys.exit(main())
