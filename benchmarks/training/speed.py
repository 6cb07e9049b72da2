"""How soon does `automl speed` find the fastest setting, beside a grid and a search by halving?

    python benchmarks/training/speed.py [--cases NAME ...]   measure and store the rows (hours)
    python benchmarks/training/speed.py --quick [--check]    images with four knobs
    python benchmarks/training/speed.py --table [--check]    the stored rows

Every setting is probed once: that is the grid. `batch` doubles the batch size until a probe fails,
as Lightning's BatchSizeFinder does, then takes the grid of the other knobs at the largest that
fits. `automl speed` gets half of the probe seconds of the cheaper of the two. One probe each makes
the luckiest of many settings the fastest: what it chooses and the grid's five fastest are probed
in two rounds more. By its median the first tells which is the fastest, the second how much it is
ahead.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from automl import sweeps
from automl.cli.speed import run_probes
from automl.config import load
from automl.core import Budget, Snapshot, SweepSpec, Trial
from automl.ledger import Ledger
from automl.report.recommendation import recommended
from automl.report.record import Record
from automl.workflows.beginning import Beginning, begin
from automl.workflows.speed import REPORTS, SPEED, probing
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.training.small_gpt import train
from workers.functions.speed import SpeedProbe

ROWS = store.RESULTS / "speed.jsonl"
ENDLESS = 1e5  # seconds: the sweep ends when every setting was tried
FINALISTS, REPEATS = 5, 5  # settings that are probed again, and how often in each round
START_SECONDS = 30.0  # of the processes and the controller, which are no probe seconds
SHARE = 0.95
FAILED_SHARE = 0.02
BOTH = "affects: [speed, memory]"
HEAD = "name: bench\nworkers: {workers}\nresources: {{cpus: 1}}\ngoals: {goal}\n"
BATCH = {"translation": "batch_tokens", "gpt": "batch_size", "images": "batch_size"}
CASES = {
    "translation": f"""{HEAD.format(workers=2, goal="maximize bleu")}workload: translation
space:
  batch_tokens: {{choices: [512, 1024, 2048], ordered: true, {BOTH}}}
  accumulation: [1, 2]
  attention_layout: auto
  matmul_precision: [highest, medium]
  activation_checkpointing: [none, layers]
  parallelism: [single, ddp]
""",
    "gpt": f"""{HEAD.format(workers=1, goal="minimize loss")}space:
  batch_size: {{choices: [2, 4, 8, 16], ordered: true, {BOTH}}}
  accumulation: {{choices: [1, 2], {BOTH}}}
  bf16: {{choices: [false, true], {BOTH}}}
  fused: {{choices: [false, true], {BOTH}}}
  flash: {{choices: [false, true], {BOTH}}}
  recompute: {{choices: [false, true], {BOTH}}}
""",
    "images": f"""{HEAD.format(workers=1, goal="maximize accuracy")}workload: image_classification
fixed: {{filters: 12, dense_units: 64}}
space:
  batch_size: {{choices: [16, 32, 64, 128], ordered: true, {BOTH}}}
  precision: {{choices: [fp32, bf16], {BOTH}}}
  memory_format: auto
  matmul_precision: [highest, medium]
  accumulation: [1, 2]
  optimizer_implementation: auto
""",
}
QUICK = f"""{HEAD.format(workers=1, goal="maximize accuracy")}workload: image_classification
data: {{name: builtin, train: 300, test: 50}}
fixed: {{filters: 8, dense_units: 32}}
space:
  batch_size: {{choices: [16, 32, 64], ordered: true, {BOTH}}}
  precision: {{choices: [fp32, bf16], {BOTH}}}
  memory_format: auto
  matmul_precision: [highest, medium]
"""


def spec_of(config: str, objective: Callable[[Any], Any] | None) -> SweepSpec:
    """The sweep that a configuration describes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(config)
        return load(file, objective=objective is not None).spec


def finished(snapshot: Snapshot) -> Snapshot:
    """The sweep with the finished probes only."""
    ended = [t for t in snapshot.trials if t.state.finished and (t.failure or SPEED in t.metrics)]
    return replace(snapshot, trials=ended)


def probes(
    spec: SweepSpec, limits: dict[str, Any], objective: Callable[[Any], Any] | None, **options: Any
) -> list[Trial]:
    """The finished probes of a sweep, within limits; without options each setting is tried once."""
    probed = None if objective is None else SpeedProbe(objective, REPORTS)
    wanted = replace(probing(spec, ENDLESS), **options)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Ledger.open(folder, create=True)) as ledger,
    ):
        begun = begin(ledger, wanted, Beginning(limits=limits))
        snapshot = sweeps.run(
            begun, ledger=ledger, objective=probed, resume=True, dispatcher="local"
        )
    return list(finished(snapshot).trials)


def again(
    spec: SweepSpec, params: dict[str, Any], objective: Callable[[Any], Any] | None
) -> list[float]:
    """The speeds of further probes of one setting."""
    repeated = {"budget": Budget(trials=REPEATS), "replicates": REPEATS}
    return [speed_of(trial) for trial in probes(spec, params, objective, **repeated)]


def measure(name: str, config: str) -> store.Row:
    """The row of a case."""
    objective = train if name == "gpt" else None
    spec = spec_of(config, objective)
    grid = probes(spec, {}, objective)
    cost = {"grid": sum(t.seconds for t in grid), "batch": batch_seconds(grid, BATCH[name])}
    budget = min(cost.values()) / 2
    wall = 2 * budget + START_SECONDS
    ended = finished(run_probes(spec, {}, objective, seconds=wall, dispatcher="local")[1])
    tried = within(ended.trials, budget)
    answer = recommended(Record.of(replace(ended, trials=tried)))
    chosen = dict(answer.params) if answer else grid[0].params
    best = [t.params for t in sorted(grid, key=speed_of)[-FINALISTS:]]
    finalists = [chosen, *(params for params in best if params != chosen)]
    once, twice = (
        [median(again(spec, dict(params), objective)) for params in finalists] for _ in range(2)
    )
    fastest = once.index(max(once))
    first = {frozenset(t.params.items()): speed_of(t) for t in grid}
    return {
        "case": name,
        "settings": len(grid),
        "seconds": {**cost, "speed": sum(t.seconds for t in tried)},
        "probes": len(tried),
        "share": twice[0] / twice[fastest],
        "share_by_one_probe": first.get(frozenset(chosen.items()), 0.0) / max(first.values()),
        "finalists": [once, twice],
        "out_of_memory": sum(t.failure == "out_of_memory" for t in tried),
    }


def speed_of(trial: Trial) -> float:
    """What a probe has measured; 0 if it failed."""
    return 0.0 if trial.failure else trial.metrics[SPEED]


def within(trials: Sequence[Trial], budget: float) -> list[Trial]:
    """The first probes, which together take at most `budget` seconds; at least one."""
    sums = accumulate(trial.seconds for trial in trials)
    return list(trials[: max(1, sum(seconds <= budget for seconds in sums))])


def batch_seconds(grid: list[Trial], batch: str) -> float:
    """Probe seconds of doubling the batch size at the defaults, then a grid of the rest."""
    default = grid[0].params
    line = [t for t in grid if {**t.params, batch: default[batch]} == default]
    fits = max((t.params[batch] for t in line if not t.failure), default=default[batch])
    rest = [t for t in grid if t.params[batch] == fits and t not in line]
    return sum(t.seconds for t in [*line, *rest])


def table(rows: list[store.Row]) -> str:
    """A line for each case."""
    lines = [f"{'case':12}{'settings':>9}{'grid':>9}{'batch':>9}{'speed':>9}{'share':>8}{'oom':>5}"]
    for row in rows:
        seconds = "".join(f"{row['seconds'][k]:8.0f}s" for k in ("grid", "batch", "speed"))
        share, failed = f"{row['share']:8.1%}", f"{row['out_of_memory']:5}"
        lines.append(f"{row['case']:12}{row['settings']:9}{seconds}{share}{failed}")
    return "\n".join(lines)


def claims(rows: list[store.Row], names: list[str]) -> list[Claim]:
    """The speed that was found, its cost, and failures."""
    known = {row["case"] for row in rows}
    made = [complete("every case", [name for name in names if name not in known])]
    for row in rows:
        seconds, name = row["seconds"], row["case"]
        ratio = seconds["speed"] / min(seconds["grid"], seconds["batch"])
        made.append(at_least(f"{name}: share of the fastest", row["share"], SHARE))
        made.append(at_most(f"{name}: probe seconds beside the cheaper search", ratio, 0.5))
    tried = sum(row["probes"] for row in rows)
    failed = sum(row["out_of_memory"] for row in rows) / tried if tried else None
    return [*made, at_most("share of probes out of memory", failed, FAILED_SHARE)]


def main() -> int:
    """Measure, store the rows and print the table."""
    parser = benchmark_parser(__doc__, "images with four knobs")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    given = parser.parse_args()
    if given.quick:
        rows = [measure("images", QUICK)]
    elif not given.table:
        for name in given.cases:
            store.add(ROWS, measure(name, CASES[name]))
    if not given.quick:
        rows = list(store.load(ROWS, "case").values())
    print(table(rows))
    return conclude(claims(rows, ["images"] if given.quick else list(CASES))) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
