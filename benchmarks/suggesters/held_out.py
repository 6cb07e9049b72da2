"""Search and choice apart: what a suggester recommends is judged on data that it did not see.

    python benchmarks/suggesters/held_out.py                            bayes, 60 problems, 5 seeds
    python benchmarks/suggesters/held_out.py --part tables --contestants bayes,bayes~draws
    python benchmarks/suggesters/held_out.py --part sealed --why "..."    one look for one decision
    python benchmarks/suggesters/held_out.py --table --against bayes@CODE
    python benchmarks/suggesters/held_out.py --part develop --reference   measure the scales again

Parts: `develop` (60 live trainings), `subset` (every third of them), `tables` (recorded trainings,
if the shared data are there), `sealed` (30 live trainings of other models on other data). `bayes~R`
is `bayes` with the rule R of its policy flipped. Fixed sizes: 5 seeds decide, 9 confirm. Regret is
0 for the reference (the best known configuration on splits that selected nothing) and 1 for the
best of five random ones. `search` is the regret of the best configuration that was tried (of live
trainings, of the `TRIED` best seen), `choice` what is recommended less that.
Measurement goes on where it was interrupted.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import json
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from automl.core.goals import Goal, parse_goals
from automl.core.trial import Trial, TrialState
from automl.suggesters.base import Suggester
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete, conclude
from benchmarks.common.missing import missing
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import Row
from benchmarks.suggesters.contestants import make
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.loop import cpu_seconds, recommended
from benchmarks.suggesters.recorded_tables import recorded_tables
from benchmarks.suggesters.suggesters import one_thread
from benchmarks.suggesters.trainings import Training, trainings
from search_spaces import Space

ROWS: Final = store.RESULTS / "held_out.jsonl"
HISTORY: Final = store.RESULTS / "held_out_history.jsonl"
SCALES: Final = store.RESULTS / "held_out_scales.json"
CACHE: Final = Path(__file__).parents[1] / ".cache" / "trainings"
KEYS: Final = ("problem", "suggester", "seed", "code")
PARTS: Final = ("develop", "subset", "tables", "sealed")
AT: Final = (10, 25, 35, 50)
SEEDS: Final = 5
PEERS: Final = ("random", "tpe", "optuna-gp")
RANDOM: Final = 60  # random configurations behind a scale
SEARCHED: Final = 60  # and trials of TPE
REEVALUATED: Final = 8  # of all known, and the best of each five random ones: may be the reference
MIN_SPREAD: Final = 0.01  # of a scale, in units of the loss
TRIED: Final = 5  # of live trainings: so many of the best seen are judged, as each costs a training
SHARE: Final = 2.0  # most that one problem weighs, in equal shares


class Judged(Protocol):
    """A problem: what a search sees, and how a configuration is judged."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def space(self) -> Space: ...

    def seen(self, params: Mapping[str, Any], rng: np.random.Generator) -> float: ...
    def score(self, params: Mapping[str, Any]) -> float: ...


@dataclass
class CachedTraining:
    """A live training with its losses on disk, one file a problem."""

    training: Training
    known: dict[str, float] | None = None

    @property
    def name(self) -> str:
        return self.training.name

    @property
    def kind(self) -> str:
        return self.training.kind

    @property
    def space(self) -> Space:
        return self.training.space

    def seen(self, params: Mapping[str, Any], rng: np.random.Generator) -> float:
        """The loss on the one split that a search sees."""
        return self.loss(params, "seen")

    def score(self, params: Mapping[str, Any]) -> float:
        """The mean loss on the splits that judge."""
        return self.loss(params, "score")

    def loss(self, params: Mapping[str, Any], part: Any) -> float:
        """The mean loss on the splits of a part of `trainings.REPEATS`."""
        path = CACHE / f"{self.name}.jsonl"
        if self.known is None:
            self.known = {row["key"]: row["loss"] for row in store.read(path)}
        key = part + json.dumps(params, sort_keys=True)
        if key not in self.known:
            self.known[key] = float(np.mean(self.training.losses(params, part)))
            path.parent.mkdir(parents=True, exist_ok=True)
            store.add(path, {"key": key, "loss": self.known[key]})
        return self.known[key]


@dataclass(frozen=True)
class Task:
    """What a contestant is told of a problem."""

    space: Space
    goals: tuple[Goal, ...] = field(default_factory=lambda: parse_goals("minimize loss"))
    constraints: tuple[()] = ()


def problems(part: str) -> list[Judged]:
    """The problems of a part."""
    if part == "tables":
        return list(recorded_tables())
    found: list[Judged] = [CachedTraining(t) for t in trainings(sealed=part == "sealed")]
    return found[::3] if part == "subset" else found


def run(
    name: str,
    problem: Judged,
    seed: int,
    num_trials: int = AT[-1],
    suggester: Suggester | None = None,
) -> Row:
    """One search; what is recommended is judged after `AT` trials, and the best that was tried.

    A suggester without a model recommends the best observed trial.

    Args:
        suggester: None for the contestant of that name.
    """
    if suggester is None:
        suggester = make(name, Task(problem.space), seed)  # type: ignore[arg-type]
    rng = np.random.default_rng([seed, zlib.crc32(problem.name.encode())])
    trials: list[Trial] = []
    seconds = []
    try:
        while len(trials) < num_trials:
            started = cpu_seconds(suggester)
            found = suggester.suggest(trials, [])
            seconds.append(cpu_seconds(suggester) - started)
            if not found:
                break
            loss = problem.seen(found[0], rng)
            number = len(trials)
            trials.append(
                Trial(number, dict(found[0]), TrialState.COMPLETED, metrics={"loss": loss})
            )
        points = [n for n in AT if n <= num_trials]
        ranked = [sorted(trials[:n], key=lambda trial: trial.metrics["loss"]) for n in points]
        chosen = [
            recommended(suggester, trials[:n]) or listed[0].params
            for n, listed in zip(points, ranked, strict=True)
        ]
    finally:
        getattr(suggester, "close", lambda: None)()
    tried = TRIED if isinstance(problem, CachedTraining) else num_trials
    scores = [problem.score(params) for params in chosen]
    return {
        "problem": problem.name,
        "suggester": name,
        "seed": seed,
        "code": fingerprint(name),
        "at": points,
        "seen": [listed[0].metrics["loss"] for listed in ranked],
        "score": scores,
        "visited": [
            min(score, *(problem.score(trial.params) for trial in listed[:tried]))
            for score, listed in zip(scores, ranked, strict=True)
        ],
        "best": chosen[-1],
        "seconds": float(f"{np.median(seconds[10:] or seconds):.3g}"),
    }


def scale_of(problem: Judged, rows: Sequence[Row]) -> dict[str, Any]:
    """Reference and best of five random configurations, of what is seen and of what judges.

    Args:
        rows: of searches on this problem; their best configurations may be the reference.
    """
    if not isinstance(problem, CachedTraining):
        means = problem.means  # type: ignore[attr-defined]
        chances = 1 - np.arange(len(means) + 1) / len(means)
        five = float((means * -np.diff(chances**5)).sum())
        scale = {"best": float(means[0]), "five_random": five}
        return {**scale, "seen_best": scale["best"], "seen_five_random": five}
    rng = np.random.default_rng([7, zlib.crc32(problem.name.encode())])
    drawn = problem.space.sample(rng, RANDOM)
    losses = [problem.loss(params, "seen") for params in drawn]
    firsts = [min(range(i, i + 5), key=losses.__getitem__) for i in range(0, RANDOM, 5)]
    suggester = make("tpe", Task(problem.space), 7)  # type: ignore[arg-type]
    trials = [
        Trial(i, params, TrialState.COMPLETED, metrics={"loss": loss})
        for i, (params, loss) in enumerate(zip(drawn, losses, strict=True))
    ]
    for _ in range(SEARCHED):
        params = suggester.suggest(trials, [])[0]
        metrics = {"loss": problem.loss(params, "seen")}
        trials.append(Trial(len(trials), params, TrialState.COMPLETED, metrics=metrics))
    trials.sort(key=lambda trial: trial.metrics["loss"])
    found = [trial.params for trial in trials[:REEVALUATED]] + [drawn[i] for i in firsts]
    found += [row["best"] for row in rows]
    best = min(found, key=lambda params: problem.loss(params, "reference"))
    return {
        "best": problem.loss(best, "score"),
        "five_random": float(np.mean([problem.loss(drawn[i], "score") for i in firsts])),
        "seen_best": min([trials[0].metrics["loss"], *(row["seen"][-1] for row in rows)]),
        "seen_five_random": float(np.mean([losses[i] for i in firsts])),
        "params": best,
    }


def scales() -> dict[str, Any]:
    """The stored scale of each problem."""
    found: dict[str, Any] = json.loads(SCALES.read_text()) if SCALES.exists() else {}
    return found


def regrets(row: Row, scale: Mapping[str, float], score: str = "score") -> list[float]:
    """Regret after `AT` trials, in -1 to 2; below 0 the search beat the reference by luck."""
    prefix = "seen_" if score == "seen" else ""
    best, five = scale[f"{prefix}best"], scale[f"{prefix}five_random"]
    spread = max(five - best, MIN_SPREAD)
    values = row.get(score, row["score"])
    return [float(np.clip((value - best) / spread, -1.0, 2.0)) for value in values]


def weights(amounts: Sequence[float]) -> np.ndarray:
    """Weights at most 1, so that no amount has more than `SHARE` equal shares of the sum."""
    sizes = np.abs(np.asarray(amounts, dtype=float))
    found = np.ones(len(sizes))
    for _ in range(50):
        limit = SHARE * float((found * sizes).mean())
        found = np.minimum(1.0, limit / np.maximum(sizes, 1e-12))
    return found


@dataclass(frozen=True)
class Difference:
    """Paired difference of two contestants' regret."""

    mean: float
    error: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.error:.3f} (n {self.runs})"


Runs = dict[tuple[str, int], list[float]]  # regrets by problem and seed


def difference(ours: Runs, base: Runs, at: int) -> Difference | None:
    """Mean over problems of the mean over seeds, weighed; its standard error.

    The error is over problems if there are at least ten, else over seeds.
    """
    by_problem: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key in ours.keys() & base.keys():
        by_problem[key[0]].append((ours[key][at], base[key][at]))
    if not by_problem:
        return None
    pairs = [np.array(found) for found in by_problem.values()]
    weight = weights([float(found.mean()) for found in pairs])
    gaps = [w * (found[:, 0] - found[:, 1]) for w, found in zip(weight, pairs, strict=True)]
    means = np.array([gap.mean() for gap in gaps])
    if len(means) >= 10:
        error = float(means.std(ddof=1) / math.sqrt(len(means)))
    else:
        parts = [gap.var(ddof=1) / len(gap) if len(gap) > 1 else math.nan for gap in gaps]
        error = math.sqrt(sum(parts)) / len(parts)
    return Difference(float(means.mean()), error, sum(map(len, gaps)))


def mean_regret(runs: Runs, at: int) -> float:
    """Mean over problems of the mean over seeds, weighed so that none has more than two shares."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for (problem, _), found in runs.items():
        by_problem[problem].append(found[at])
    means = np.array([np.mean(found) for found in by_problem.values()])
    return float((weights(list(means)) * means).mean())


def table(rows: Sequence[Row], listed: Sequence[Judged], against: str) -> str:
    """Regret of each contestant, by kind, and its difference from one of them."""
    known = scales()
    kinds = {problem.name: problem.kind for problem in listed}
    lines = [f"{'kind':9s} {'contestant':44s} " + "".join(f"{f'at {n}':>8s}" for n in AT)]
    lines[0] += (
        f"{'search':>9s}{'choice':>8s}{'seconds':>9s}   difference from {against} at 10, 25, 50"
    )
    for kind in (*sorted(set(kinds.values())), "all"):
        names = {name for name in kinds if kind in ("all", kinds[name])} & known.keys()
        groups = grouped(rows, names)
        base = groups.get(against, [])
        for label, found in groups.items():
            runs, others = as_runs(found, known), as_runs(base, known)
            search = mean_regret(as_runs(found, known, "visited"), -1)
            choice = mean_regret(runs, -1) - search
            line = "".join(f"{mean_regret(runs, i):8.3f}" for i in range(len(AT)))
            seconds = float(np.median([row["seconds"] for row in found]))
            gaps = [difference(runs, others, AT.index(n)) for n in (10, 25, 50)]
            told = ", ".join(map(str, gaps)) if label != against and base else ""
            count = f"{label} ({len(found)})"
            lines.append(
                f"{kind:9s} {count:44s} {line}{search:9.3f}{choice:8.3f}{seconds:9.3f}   {told}"
            )
    return "\n".join(lines)


def grouped(rows: Sequence[Row], names: set[str]) -> dict[str, list[Row]]:
    """Full rows on these problems by contestant, `NAME@CODE` unless the code is the present one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["problem"] in names and row["at"] == list(AT):
            old = row["code"] != fingerprint(row["suggester"])
            found[f"{row['suggester']}@{row['code']}" if old else row["suggester"]].append(row)
    return dict(sorted(found.items()))


def as_runs(rows: Sequence[Row], known: Mapping[str, Any], score: str = "score") -> Runs:
    """Regrets by problem and seed."""
    return {(r["problem"], r["seed"]): regrets(r, known[r["problem"]], score) for r in rows}


def claims(rows: Sequence[Row], listed: Sequence[Judged], names: Sequence[str]) -> list[Claim]:
    """What must hold on each kind: three quarters of the best peer's regret, from the start."""
    known = scales()
    claimed = []
    for kind in sorted({problem.kind for problem in listed}):
        own = {problem.name for problem in listed if problem.kind == kind} & known.keys()
        groups = grouped(rows, own)
        runs = {name: as_runs(group, known) for name, group in groups.items()}
        means = {n: [mean_regret(found, i) for i in range(len(AT))] for n, found in runs.items()}
        ours, peers = means.get("bayes"), [means[n] for n in ("tpe", "optuna-gp") if n in means]
        late, early = ([peer[i] for peer in peers] for i in (3, 2))
        for claim, at, bound in (
            ("regret at 50 at most 0.75 of the best peer's", 3, 0.75 * min(late, default=math.nan)),
            ("at 25 no worse than the best peer at 35", 1, min(early, default=math.nan)),
            ("at 10 no worse than random", 0, means.get("random", [math.nan])[0]),
        ):
            limit = None if math.isnan(bound) else bound
            claimed.append(at_most(f"{kind}: {claim}", ours[at] if ours else None, limit))
    done = {(row["problem"], row["suggester"]) for row in rows}
    pairs = [(problem.name, name) for problem in listed for name in names]
    missing = [pair for pair in pairs if pair not in done]
    return [*claimed, complete("every contestant on every problem", missing)]


def measure(options: argparse.Namespace, listed: Sequence[Judged]) -> None:
    """Measure the missing runs."""

    def key(name: str, problem: Judged, seed: int) -> tuple[Any, ...]:
        return problem.name, name, seed, fingerprint(name)

    for name, problem, seed in missing(options, listed, KEYS, key):
        row = run(name, problem, seed)
        store.append(options.rows, row)
        print(f"{name:30s} {problem.name:28s} {seed} {row['score'][-1]:.4f}", flush=True)


def quick() -> int:
    """Six problems and a table, 25 trials each: we see better losses than random search on most."""
    listed = [*problems("develop")[5::10], *problems("tables")[-1:]]
    worse = 0
    for problem in listed:
        ours, other = (run(name, problem, 0, 25)["seen"][-1] for name in ("bayes", "random"))
        worse += ours > other
        print(f"{problem.name:28s} bayes {ours:.4f}, random {other:.4f}")
    return conclude([at_most("problems on which random search is ahead", worse, len(listed) // 2)])


def remember(why: str, rows: Sequence[Row], listed: Sequence[Judged]) -> None:
    """Keep what the sealed problems said of the present code, and why they were asked."""
    groups = grouped(rows, {problem.name for problem in listed} & scales().keys())
    found = {
        f"{name} at {n}": round(mean_regret(as_runs(group, scales()), i), 4)
        for name, group in groups.items()
        for i, n in enumerate(AT)
    }
    entry = {"date": date.today().isoformat(), "code": fingerprint("bayes"), "why": why, **found}
    store.add(HISTORY, entry)


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    options = benchmark_parser(__doc__, "seven problems, 25 trials")
    options.add_argument("--part", default="develop", choices=PARTS)
    options.add_argument("--contestants", default=["bayes"], type=lambda text: text.split(","))
    options.add_argument("--only", default="", help="part of the name of a problem")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--against", default="bayes", help="contestant to compare with")
    options.add_argument("--rows", type=Path, default=ROWS, help="file of rows")
    options.add_argument("--minutes", type=float, default=math.inf, help="begin no run later")
    options.add_argument("--why", help="what is decided by a look at the sealed problems")
    options.add_argument("--reference", action="store_true", help="measure the scales again")
    given = options.parse_args()
    looks = given.part == "sealed" and not (given.table or given.reference or given.quick)
    if looks and "bayes" in given.contestants and not given.why:
        options.error("--why: say what is decided by a look at the sealed problems")
    return given


def main() -> int:
    """Measure, print the table, and judge it if `--check` is given."""
    options = arguments()
    one_thread()
    if options.quick:
        return quick()
    listed = [problem for problem in problems(options.part) if options.only in problem.name]
    if options.reference or options.part == "tables":
        rows = store.read(options.rows)
        for problem in listed:
            own = [row for row in rows if row["problem"] == problem.name and row["seed"] < 2]
            found = {**scales(), problem.name: scale_of(problem, own)}
            SCALES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
            if options.reference:
                print(problem.name, found[problem.name], flush=True)
    if not (options.table or options.reference):
        measure(options, listed)
        if options.why:
            remember(options.why, store.read(options.rows), listed)
    rows = list(store.load(options.rows, *KEYS).values())
    print(table(rows, listed, options.against))
    return conclude(claims(rows, listed, options.contestants)) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
