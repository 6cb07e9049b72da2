"""automl, Optuna, Ax and Ray Tune on the same four small tasks, 30 trials each, on one core.

    python benchmarks/comparison/run.py [TASK_TOOL ...]   measure what is missing, print the tables
    python benchmarks/comparison/run.py --quick           automl and Optuna, one seed, eight trials
    python benchmarks/comparison/run.py --table           the stored rows

The tasks are in `tasks.py`; `TASK_TOOL.py` is what a user of the tool writes. Each pair has a
process of its own, which runs one seed after the other. Ray Tune needs `pip install "ray[tune]"`.
Rows are stored one by one, so the same command goes on after an interruption.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.common import store
from benchmarks.common.bounds import Claim, complete, conclude
from benchmarks.common.options import benchmark_parser

ROWS: Final = store.RESULTS / "comparison.jsonl"
TRIALS: Final = 30
TASKS: Final = {
    "digits": "1. A mixed space with a condition",
    "spirals": "2. A training with reports that is stopped early",
    "forest": "3. Two goals and a constraint",
    "memory": "4. Configurations that do not fit in memory",
}
TOOLS: Final = {  # the distribution and the name of each, and how many seeds
    "automl": ("automl-sweep", "automl", 10),
    "optuna": ("optuna", "Optuna", 10),
    "ax": ("ax-platform", "Ax", 3),
    "ray": ("ray", "Ray Tune", 10),
}
WORST_ERROR, MAX_DECADES, DECADES = 0.3, 4.0, 2.0  # the corner of the hypervolume of "forest"


def child(pair: str, seeds: Sequence[int], trials: int) -> None:
    """Run the seeds of a pair in this process; one row a line on standard output.

    Seconds are counted by the clock and by the processors, over this process and its descendants.
    """
    began = psutil.Process().create_time()
    rows, log = os.dup(1), Path("record.jsonl").absolute()
    os.dup2(2, 1)  # what a tool prints is no row
    os.environ["RECORD"] = str(log)
    module = importlib.import_module(f"benchmarks.comparison.{pair}")
    for number, seed in enumerate(seeds):
        log.write_text("")
        wall, cpu = time.time(), cpu_seconds()
        module.search(seed, trials=trials)
        now = time.time()
        row = {"seed": seed, "seconds": now - wall, "cpu": cpu_seconds() - cpu}
        if not number:
            row |= {"first_seconds": now - began, "first_cpu": cpu_seconds()}
        records = [json.loads(line) for line in log.read_text().splitlines()]
        row |= judge(pair.partition("_")[0], records, trials)
        os.write(rows, (json.dumps(row) + "\n").encode())
    os._exit(0)  # Ray would take seconds to leave


def cpu_seconds() -> float:
    """Processor seconds of this process and its descendants, those that have ended too.

    Ray's processes do not wait for their workers, so workers of Ray that have ended are missing.
    """
    total = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def judge(task: str, records: list[dict[str, Any]], trials: int) -> dict[str, float]:
    """The quality of a run, from what its trials recorded."""
    if task == "forest":
        kept = [row for row in records if row["recall"] >= 0.6]
        front = [(row["error"], row["nodes"]) for row in kept]
        return {"volume": hypervolume(front), "feasible": len(kept)}
    errors = [row["error"] for row in records if "error" in row]
    found: dict[str, float] = {"error": min(errors)}
    if task == "spirals":
        found["epochs"] = len(errors)
    if task == "memory":
        found["failed"] = trials - len(errors)
    return found


def hypervolume(points: Iterable[tuple[float, float]]) -> float:
    """The share of the box below (0.3, 10,000 nodes) that these errors and nodes dominate.

    Nodes count by their logarithm. The box ends at an error of 0 and at 100 nodes.
    """
    import math

    lowest, volume = WORST_ERROR, 0.0
    inside = [(max(math.log10(nodes), MAX_DECADES - DECADES), error) for error, nodes in points]
    for size, error in sorted(inside):
        if size < MAX_DECADES and error < lowest:
            volume += (lowest - error) * (MAX_DECADES - size)
            lowest = error
    return volume / (WORST_ERROR * DECADES)


def measure(pair: str, seeds: Sequence[int], trials: int) -> Iterable[store.Row]:
    """Start the process of a pair and yield its rows as they come."""
    tool = pair.partition("_")[2]
    with tempfile.TemporaryDirectory(prefix="comparison-") as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": folder}
        if tool == "ray":
            environment["RAY_ADDRESS"] = "local"  # else it joins the Ray that ran here last
        words = [sys.executable, __file__, "--child", str(trials), pair, *map(str, seeds)]
        log = Path(folder, "log")
        with log.open("w") as errors:
            process = subprocess.Popen(
                words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert process.stdout is not None
        for line in process.stdout:
            yield {
                "task": pair.partition("_")[0],
                "tool": tool,
                **{name: rounded(value) for name, value in json.loads(line).items()},
                "trials": trials,
                "version": metadata.version(TOOLS[tool][0]),
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "load": round(os.getloadavg()[0], 1),
            }
        if process.wait():
            print(f"{pair} ended with {process.returncode}:\n{log.read_text()[-2000:]}")


def rounded(value: float) -> float:
    """A float with five digits; an integer as it is."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def missing(rows: Iterable[store.Row]) -> dict[str, list[int]]:
    """The seeds of each pair that no row has."""
    there = {(row["task"], row["tool"], row["seed"]) for row in rows}
    wanted = {
        f"{task}_{tool}": [seed for seed in range(count) if (task, tool, seed) not in there]
        for tool, (_, _, count) in TOOLS.items()
        for task in TASKS
    }
    return {pair: seeds for pair, seeds in wanted.items() if seeds}


COLUMNS: Final = {
    "digits": {"error": ("error", 4)},
    "spirals": {"error": ("error", 4), "epochs": ("epochs trained", 0)},
    "forest": {"volume": ("hypervolume", 3), "feasible": ("feasible trials", 1)},
    "memory": {"error": ("error", 4), "failed": ("failed trials", 1)},
}


def table(task: str, rows: Sequence[store.Row]) -> str:
    """The Markdown table of a task: means and deviations over seeds, median CPU seconds."""
    heads = [head for head, _ in COLUMNS[task].values()]
    names = ["tool", "seeds", *heads, "first run, CPU s", "next runs, CPU s"]
    lines = [names, ["---"] * len(names)]
    for tool, (_, name, _) in TOOLS.items():
        own = [row for row in rows if (row["task"], row["tool"]) == (task, tool)]
        if not own:
            lines.append([name, "0", *["not measured"] * (len(names) - 2)])
        else:
            later = [row for row in own if "first_cpu" not in row]
            lines.append(
                [
                    f"{name} {own[-1]['version']}",
                    str(len(own)),
                    *(spread([r[key] for r in own], d) for key, (_, d) in COLUMNS[task].items()),
                    median([row["first_cpu"] for row in own if "first_cpu" in row]),
                    median([row["cpu"] for row in later]),
                ]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], digits: int) -> str:
    """The mean and, of several values, the standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def median(values: Sequence[float]) -> str:
    """The median of seconds."""
    return f"{statistics.median(values):.1f}" if values else "-"


def judged(rows: Sequence[store.Row], wanted: Sequence[str]) -> list[Claim]:
    """That every pair was measured; which tool is better is no claim."""
    pairs = {f"{row['task']}_{row['tool']}" for row in rows}
    absent = [pair for pair in wanted if pair not in pairs]
    return [complete("every tool ran every task", absent)]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the tables, judge."""
    parser = benchmark_parser(__doc__, "automl and Optuna, one seed, eight trials")
    parser.add_argument("--child", type=int, metavar="TRIALS", help="for this script itself")
    parser.add_argument("pairs", nargs="*", metavar="TASK_TOOL", help="measure only these")
    given = parser.parse_args(words)
    if given.child:
        child(given.pairs[0], [int(seed) for seed in given.pairs[1:]], given.child)
    every = [f"{task}_{tool}" for tool in TOOLS for task in TASKS]
    rows = [] if given.quick else list(store.load(ROWS, "task", "tool", "seed").values())
    if given.quick:
        every = [pair for pair in every if pair.endswith(("_automl", "_optuna"))]
    wanted = {pair: [0] for pair in every} if given.quick else missing(rows)
    for pair, seeds in {} if given.table else wanted.items():
        if given.pairs and pair not in given.pairs:
            continue
        print(f"{pair}: seeds {seeds}", flush=True)
        for row in measure(pair, seeds, 8 if given.quick else TRIALS):
            rows.append(row)
            if not given.quick:
                store.append(ROWS, row)
    for task, title in TASKS.items():
        print(f"\n{title}\n\n{table(task, rows)}")
    return conclude(judged(rows, every)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
