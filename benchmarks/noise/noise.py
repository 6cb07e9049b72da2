"""Noise: the true mean of what a search recommends, if each run of a configuration differs.

    python benchmarks/noise/noise.py                                   bayes on the tables, 5 seeds
    python benchmarks/noise/noise.py --contestants bayes+none,bayes+auto,tpe,optuna-gp
    python benchmarks/noise/noise.py --contestants ax,smac-noisy,hebo
    python benchmarks/noise/noise.py --part sealed --why "..."         one look for one decision
    python benchmarks/noise/noise.py --table                           the stored rows
    python benchmarks/noise/noise.py --judge                           the same searches judged anew

Parts: `shared` (recorded trainings of others, if the shared data are there), `develop` (four tables
of small trainings), `exact` (the same without noise), `live` (the live trainings of `held_out.py`
whose scale was measured, without noise too), `sealed` (six of other models on other data).
`bayes+R` is `bayes` with `replicates: R`. Each run of a configuration is another recorded seed, and
a configuration is judged by the mean over all seeds. A table is a grid of recorded values; with
`--ranges` its numbers are ranges and the nearest recorded one is looked up, so that many different
proposals are one and the same configuration. Regret is 0 for the best mean and 1 for the best of
five random configurations. Repeated runs count as trials.

The answer of a contestant is what its documentation recommends:

- `bayes`: `recommended`.
- `ax`: `get_best_parameterization` of its client, by default the tried configuration of which its
  model expects most, to account for noise; if the model fits badly, the best observed one.
- `smac-noisy`: the incumbent of SMAC's default intensifier, which runs good configurations up to
  three times (`deterministic=False`). SMAC knows that there are 50 trials.
- `hebo`: the best observed trial, its `best_x`; likewise `tpe` and `optuna-gp`. Neither these nor
  `ax` run a configuration again.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import logging
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

from automl.core import Snapshot, SweepSpec, Trial, TrialState, parse_goals
from automl.core.ranking import MAX_SHARE
from automl.report.recommendation import Recommendation, recommended
from automl.report.record import Record
from automl.suggesters import SUGGESTERS
from automl.suggesters._peers import seeded_globally, silenced
from automl.suggesters.ax import AxSuggester
from automl.suggesters.base import SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import Proposer, make_suggester
from automl.suggesters.queue import NUM_GAINS
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.missing import missing
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import Row
from benchmarks.peers.client import PeerSuggester
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.held_out import CachedTraining, difference, mean_regret, scale_of
from benchmarks.suggesters.held_out import scales as live_scales
from benchmarks.suggesters.loop import cpu_seconds
from benchmarks.suggesters.recorded_tables import FOLDER, RecordedTable, recorded_tables
from benchmarks.suggesters.suggesters import one_thread
from benchmarks.suggesters.trainings import trainings
from workers.protocol import Params

ROWS: Final = store.RESULTS / "noise.jsonl"
HISTORY: Final = store.RESULTS / "noise_history.jsonl"
TABLES: Final = Path(__file__).parent / "tables"
KEYS: Final = ("problem", "grid", "contestant", "seed", "code")
PARTS: Final = ("shared", "develop", "exact", "live", "sealed")
EXACT: Final = ("exact", "live")  # the parts without noise
OURS: Final = ("bayes+none", "bayes+auto")
PROCESSES: Final = ("smac-noisy", "hebo")  # peers with their own packages
ADVISERS: Final = ("ax", "smac-noisy")  # peers whose answer is not the best observed trial
PEERS: Final = ("tpe", "optuna-gp", "ax", *PROCESSES)
AT: Final = (10, 15, 20, 25, 30, 35, 40, 45, 50)
SEEDS: Final = 5
GOALS: Final = parse_goals("minimize loss")


class ExactTable(RecordedTable):
    """Recorded trainings without noise: each run has the mean over the seeds."""

    @property
    def name(self) -> str:
        return f"{super().name}, exact"

    def losses(self, params: Mapping[str, Any]) -> np.ndarray:
        """The mean loss."""
        return np.array([self.score(params)])


class LiveTraining(CachedTraining):
    """A training on one split with one seed: what a search sees is what it is judged by."""

    grid = True

    def losses(self, params: Mapping[str, Any]) -> np.ndarray:
        """The loss."""
        return np.array([self.score(params)])

    def score(self, params: Mapping[str, Any]) -> float:
        """The loss."""
        return self.loss(params, "seen")


Table = RecordedTable | LiveTraining


class SeededRuns:
    """Runs of configurations of a table: each run has another recorded seed while there are some.

    Args:
        table: the recorded trainings.
        seed: of the order of the recorded seeds.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self._table = table
        self._rng = np.random.default_rng([seed, zlib.crc32(table.name.encode())])
        self._orders: dict[Hashable, list[float]] = {}

    def loss(self, params: Mapping[str, Any]) -> float:
        """The loss of the next run."""
        key = self._table.space.key(params)
        if not self._orders.get(key):
            losses = self._table.losses(params)
            self._orders[key] = list(self._rng.permutation(losses))
        return float(self._orders[key].pop())


class Ax(AxSuggester):
    """Ax, which also recommends a configuration."""

    def best(self, history: Sequence[Trial]) -> Params:
        """What a client of Ax recommends that has fitted its model to these trials."""
        self.suggest(history, [])
        with silenced("ax", logging.CRITICAL), seeded_globally(self.seed):
            params, *_ = self.client.get_best_parameterization()
        return self._from_ax(params)

    def _client(self, parameters: list[Any], seed: int) -> Any:
        self.client = super()._client(parameters, seed)
        return self.client


def suggester_of(name: str, table: Table, seed: int) -> Suggester:
    """The suggester of a contestant, or the fallback of the platform."""
    if name in PROCESSES:
        return PeerSuggester(name, table.space, GOALS, seed=seed)
    if name == "ax":
        return Ax(table.space, GOALS, seed=seed)
    return make_suggester(name, GOALS, (), SearchContext(Domain(table.space)), seed=seed)


def problems(part: str, *, grid: bool = True) -> Sequence[Table]:
    """The tables of a part."""
    if part == "live":
        known = live_scales()
        return [LiveTraining(one) for one in trainings(sealed=False) if one.name in known]
    if part == "exact":
        return [ExactTable(table.path, grid) for table in recorded_tables(TABLES / "develop")]
    return recorded_tables(FOLDER if part == "shared" else TABLES / part, grid=grid)


def scales_of(listed: Sequence[Table]) -> dict[str, Mapping[str, float]]:
    """The best mean loss of each table, and that of the best of five random configurations."""
    known = live_scales()
    return {
        one.name: {key: known[one.name][f"seen_{key}"] for key in ("best", "five_random")}
        if isinstance(one, LiveTraining)
        else scale_of(one, ())
        for one in listed
    }


def code_of(name: str) -> str:
    """Fingerprint of the code of a contestant; "" for a peer."""
    return fingerprint("bayes") if name.startswith("bayes") else ""


def run(name: str, table: Table, seed: int, num_trials: int = AT[-1]) -> Row:
    """One search, and its answer after `AT` trials.

    Args:
        name: of a suggester, and after a `+` how it repeats.
    """
    kind, _, replicates = name.partition("+")
    suggester: Any = suggester_of(kind, table, seed)
    many: str | int = int(replicates) if replicates.isdecimal() else replicates or "none"

    def make(asked: str, domain: Domain) -> Suggester:
        return suggester if asked == kind else suggester_of(asked, table, seed)

    proposer = Proposer(make, kind, Domain(table.space), prospects=True, replicates=many)
    runs = SeededRuns(table, seed)
    trials: list[Trial] = []
    prospects: list[list[float] | None] = []
    advice: list[Params] = []
    began = cpu_seconds(suggester)
    while len(trials) < num_trials:
        last_part = len(trials) >= (1 - MAX_SHARE) * num_trials
        batch = proposer.propose(trials, [], 1, last_part=last_part)
        if not batch.proposals:
            break
        (one,) = batch.proposals
        at = batch.prospect
        prospects.append(None if at is None else [at.gain, at.error])
        trials.append(trial(len(trials), one.params, runs.loss(one.params), one.replicate_of))
        if kind in ADVISERS and len(trials) in AT:
            advice.append(suggester.best(trials))
    row = {
        "problem": table.name,
        "grid": table.grid,
        "contestant": name,
        "seed": seed,
        "code": code_of(name),
        "at": [n for n in AT if n <= num_trials],
        **judged(name, table, seed, trials, advice),
        "prospects": prospects,
        "repeated": len(trials) - len({table.space.key(trial.params) for trial in trials}),
        "seconds": round(cpu_seconds(suggester) - began, 1),
        "trials": []
        if isinstance(table, LiveTraining)  # their values are in the cache of that benchmark
        else [[*t.params.values(), t.metrics["loss"], t.replicate_of] for t in trials],
    }
    getattr(suggester, "close", lambda: None)()
    return row


def trial(number: int, params: Mapping[str, Any], loss: float, again: int | None) -> Trial:
    """A completed run, `again` of the trial of that number."""
    metrics = {"loss": loss}
    return Trial(number, dict(params), TrialState.COMPLETED, metrics, replicate_of=again)


def judged_again(row: Row, table: Table) -> Row:
    """The row of the same search with the answers of the present code."""
    names = list(table.space.parameters)
    trials = [
        trial(number, dict(zip(names, values, strict=True)), loss, again)
        for number, (*values, loss, again) in enumerate(row["trials"])
    ]
    return {**row, **judged(row["contestant"], table, row["seed"], trials)}


def judged(
    name: str, table: Table, seed: int, trials: Sequence[Trial], advice: Sequence[Params] = ()
) -> dict[str, list[Any]]:
    """True means of the answers of a search after `AT` trials, and whether they are covered.

    Args:
        advice: the answers of a peer; without them a peer's answer is the best observed trial.
    """
    spec = SweepSpec("noise", table.space, GOALS, suggester=name.partition("+")[0], seed=seed)
    found: dict[str, list[Any]] = defaultdict(list)
    for i, some in enumerate(trials[:n] for n in AT if n <= len(trials)):
        best = min(some, key=lambda trial: trial.metrics["loss"])
        answer: Recommendation | None = None
        if name.startswith("bayes"):
            snapshot = Snapshot("noise", "running", tuple(some), GOALS, spec=spec)
            answer = recommended(Record.of(snapshot))
        told = advice[i] if advice else best.params
        score = table.score(told if answer is None else answer.params)
        interval = None if answer is None else answer.interval
        found["score"].append(score)
        found["observed"].append(table.score(best.params))
        found["visited"].append(min(table.score(trial.params) for trial in some))
        found["covered"].append(None if interval is None else interval[0] <= score <= interval[1])
    return found


def regrets(row: Row, scale: Mapping[str, float], column: str = "score") -> list[float]:
    """Regret after `AT` trials, at most 2."""
    spread = max(scale["five_random"] - scale["best"], 1e-12)
    return [min((value - scale["best"]) / spread, 2.0) for value in row[column]]


def settled_at(row: Row) -> int:
    """How many trials a sweep has that ends by `budget.until: settled`; all if it does not end."""
    in_row = 0
    for number, prospect in enumerate(row["prospects"]):
        below = prospect is not None and prospect[0] < prospect[1]
        in_row = in_row + 1 if below else 0
        if in_row == NUM_GAINS:
            return number
    return len(row["prospects"])


def table_text(rows: Sequence[Row], listed: Sequence[Table]) -> str:
    """The regrets of each contestant, the share of intervals that hold, and what settled saves."""
    scales = scales_of(listed)
    lines = [
        f"{'contestant':16s}{'runs':>5s}{'at 10':>8s}{'at 25':>8s}{'at 50':>8s}"
        f"{'observed':>10s}{'visited':>9s}{'covered':>9s}{'repeated':>10s}{'settled':>9s}"
        f"{'lost':>7s}{'seconds':>9s}"
    ]
    for name, found in grouped(rows, scales).items():
        score, observed, visited = (
            as_runs(found, scales, column) for column in ("score", "observed", "visited")
        )
        ends, lost = saving(found, scales)
        lines.append(
            f"{name:16s}{len(found):5d}"
            + "".join(f"{mean_regret(score, AT.index(n)):8.3f}" for n in (10, 25, 50))
            + f"{mean_regret(observed, -1):10.3f}{mean_regret(visited, -1):9.3f}"
            + f"{coverage(found):9.2f}{np.mean([row['repeated'] for row in found]):10.1f}"
            + f"{ends:9.1f}{lost:7.3f}{np.median([row['seconds'] for row in found]):9.1f}"
        )
    return "\n".join(lines)


def by_table(rows: Sequence[Row], listed: Sequence[Table]) -> str:
    """The regret at 50 of each contestant on each table."""
    scales = scales_of(listed)
    groups = grouped(rows, scales)
    lines = [f"{'table':32s}" + "".join(f"{name:>14s}" for name in groups)]
    for one in listed:
        cells = []
        for found in groups.values():
            own = [
                regrets(row, scales[one.name])[-1] for row in found if row["problem"] == one.name
            ]
            cells.append(f"{np.mean(own):14.3f}" if own else f"{'-':>14s}")
        lines.append(f"{one.name:32s}" + "".join(cells))
    return "\n".join(lines)


def grouped(rows: Sequence[Row], scales: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Complete rows of the present code on these tables, by contestant."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["problem"] in scales and row["at"] == list(AT):
            old = row["code"] != code_of(row["contestant"])
            found[f"{row['contestant']}@{row['code'][:4]}" if old else row["contestant"]].append(
                row
            )
    return dict(sorted(found.items()))


def as_runs(rows: Sequence[Row], scales: Mapping[str, Any], column: str = "score") -> Any:
    """Regrets by problem and seed."""
    return {(r["problem"], r["seed"]): regrets(r, scales[r["problem"]], column) for r in rows}


def coverage(rows: Sequence[Row]) -> float:
    """The share of intervals of 90% that hold the true mean, after 25 and 50 trials."""
    told = [row["covered"][AT.index(n)] for row in rows for n in (25, 50)]
    known = [one for one in told if one is not None]
    return float(np.mean(known)) if known else math.nan


def saving(rows: Sequence[Row], scales: Mapping[str, Any]) -> tuple[float, float]:
    """Trials of a sweep that ends by `settled`, and the regret that it loses by that; means."""
    ends, lost = [], []
    for row in rows:
        end, found = settled_at(row), regrets(row, scales[row["problem"]])
        at = max((i for i, n in enumerate(AT) if n <= end), default=0)
        ends.append(min(end, AT[-1]))
        lost.append(found[at] - found[-1])
    return float(np.mean(ends)), float(np.mean(lost))


def claims(rows: Sequence[Row], listed: Sequence[Table], part: str) -> list[Claim]:
    """What must hold."""
    scales = scales_of(listed)
    groups = grouped(rows, scales)
    if part in EXACT:
        runs = [as_runs(groups.get(name, []), scales) for name in OURS]
        gap = difference(runs[1], runs[0], -1)
        claim = f"{part}: regret at 50 with auto less that with none, in its standard error"
        return [at_most(claim, gap.mean if gap else None, gap.error if gap else None)]
    means = {
        name: {n: mean_regret(as_runs(found, scales), AT.index(n)) for n in (25, 50)}
        for name, found in groups.items()
    }
    peers = [means[name][50] for name in PEERS if name in means]
    peer = min(peers) if peers else None
    ours = means.get("bayes+auto")
    found = groups.get("bayes+auto", [])
    held = coverage(found) if found else None
    ends, lost = saving(found, scales) if found else (None, None)
    done = {(row["problem"], row["contestant"]) for row in rows}
    wanted = [(one.name, name) for one in listed for name in (*OURS, *PEERS)]
    return [
        at_most(
            f"{part}: regret at 50 at most 0.6 of the best peer's",
            ours[50] if ours else None,
            None if peer is None else 0.6 * peer,
        ),
        at_most(
            f"{part}: at 25 no worse than the best peer at 50", ours[25] if ours else None, peer
        ),
        at_least(f"{part}: intervals of 90% hold", held, 0.85),
        at_most(f"{part}: intervals of 90% hold", held, 0.95),
        at_most(f"{part}: regret that settled loses", lost, 0.02),
        at_most(f"{part}: trials of 50 that settled needs", ends, 2 / 3 * AT[-1]),
        complete(f"{part}: every contestant on every table", [w for w in wanted if w not in done]),
    ]


def measure(options: argparse.Namespace, listed: Sequence[Table]) -> None:
    """Measure the missing runs."""

    def key(name: str, table: Table, seed: int) -> tuple[Any, ...]:
        return table.name, table.grid, name, seed, code_of(name)

    for name, table, seed in missing(options, listed, KEYS, key):
        auto = store.load(options.rows, *KEYS).get(key(OURS[1], table, seed))
        if name == OURS[0] and auto is not None and not auto["repeated"]:
            row = {**auto, "contestant": name}  # a search that repeated nothing is the same search
        else:
            row = run(name, table, seed)
        store.append(options.rows, row)
        print(f"{name:16s} {table.name:32s} {seed} {row['score'][-1]:.4f}", flush=True)


def judge(options: argparse.Namespace, listed: Mapping[str, Table]) -> None:
    """Judge the stored searches of the present code on these tables again."""
    rows = store.load(options.rows, *KEYS).values()
    kept = [
        judged_again(row, listed[row["problem"]])
        if row["problem"] in listed
        and row["grid"] != options.ranges
        and row["code"] == fingerprint("bayes")
        else row
        for row in rows
    ]
    store.write(options.rows, kept)


def quick() -> int:
    """Two tables, 15 trials each: configurations run again, and intervals are told."""
    listed = (problems("develop") or problems("shared"))[:2]
    rows = [run("bayes+auto", table, 0, 25) for table in listed]
    for row in rows:
        print(f"{row['problem']:32s} {row['repeated']} repeated, score {row['score'][-1]:.4f}")
    found = sum(row["covered"][-1] is not None for row in rows)
    return conclude([at_least("tables with an interval", found, 1)])


def remember(why: str, rows: Sequence[Row], listed: Sequence[Table]) -> None:
    """Keep what the sealed tables said of the present code, and why they were asked."""
    scales = scales_of(listed)
    found = {
        f"{name} at {n}": round(mean_regret(as_runs(group, scales), AT.index(n)), 4)
        for name, group in grouped(rows, scales).items()
        for n in (25, 50)
    }
    entry = {"date": date.today().isoformat(), "code": fingerprint("bayes"), "why": why, **found}
    store.add(HISTORY, entry)


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    options = benchmark_parser(__doc__, "two tables, 25 trials")
    options.add_argument("--part", default="develop", choices=PARTS)
    options.add_argument("--contestants", default=list(OURS), type=lambda text: text.split(","))
    options.add_argument("--ranges", action="store_true", help="numbers are ranges, not grids")
    options.add_argument("--judge", action="store_true", help="judge the stored searches again")
    options.add_argument("--only", default="", help="part of the name of a table")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--rows", type=Path, default=ROWS, help="file of rows")
    options.add_argument("--minutes", type=float, default=math.inf, help="begin no run later")
    options.add_argument("--why", help="what is decided by a look at the sealed tables")
    given = options.parse_args()
    for name in set(given.contestants) - set(PROCESSES):
        SUGGESTERS.require(name.partition("+")[0])
    looks = given.part == "sealed" and not (given.table or given.quick)
    if looks and not given.why:
        options.error("--why: say what is decided by a look at the sealed tables")
    return given


def main() -> int:
    """Measure, print the table, and judge it if `--check` is given."""
    options = arguments()
    one_thread()
    if options.quick:
        return quick()
    tables = problems(options.part, grid=not options.ranges)
    listed = [one for one in tables if options.only in one.name]
    if options.judge:
        judge(options, {one.name: one for one in listed})
    elif not options.table:
        measure(options, listed)
        if options.why:
            remember(options.why, store.read(options.rows), listed)
    rows = [r for r in store.load(options.rows, *KEYS).values() if r["grid"] != options.ranges]
    print(table_text(rows, listed), by_table(rows, listed), sep="\n\n")
    return conclude(claims(rows, listed, options.part)) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
