"""What earlier sweeps teach a search, on the recorded tables.

    python benchmarks/suggesters/warm_starts.py                 measure the missing rows
    python benchmarks/suggesters/warm_starts.py --quick         one table, one seed, 10 trials
    python benchmarks/suggesters/warm_starts.py --table         the stored rows

`bayes+related` learns from a sweep of TPE, 40 trials, on each other table of the same family,
`bayes+unrelated` from random configurations with the losses of these sweeps. The scores are those
of `held_out.py`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.suggesters import held_out  # first: it sets the number of threads

import numpy as np  # isort: skip

from automl.core.goals import parse_goals
from automl.core.trial import Trial, TrialState
from automl.suggesters.base import EarlierSweep, SearchContext
from automl.suggesters.bayes.suggester import BayesSuggester
from automl.suggesters.domain import Domain
from benchmarks.common import store
from benchmarks.common.missing import missing
from benchmarks.common.options import benchmark_parser
from benchmarks.suggesters.contestants import make
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.held_out import KEYS, Judged, Task
from benchmarks.suggesters.suggesters import one_thread

ROWS: Final = store.RESULTS / "warm_starts.jsonl"
CONTESTANTS: Final = ("bayes", "bayes+related", "bayes+unrelated")
SEEDS, EARLIER_TRIALS, EARLIER_SEED = 3, 40, 11


def earlier_sweep(problem: Judged) -> EarlierSweep:
    """A sweep of TPE on a problem, as a user's earlier one."""
    suggester = make("tpe", Task(problem.space), EARLIER_SEED)  # type: ignore[arg-type]
    rng = np.random.default_rng([EARLIER_SEED, zlib.crc32(problem.name.encode())])
    trials: list[Trial] = []
    for number in range(EARLIER_TRIALS):
        params = suggester.suggest(trials, [])[0]
        metrics = {"loss": problem.seen(params, rng)}
        trials.append(Trial(number, params, TrialState.COMPLETED, metrics=metrics))
    losses = [trial.metrics["loss"] for trial in trials]
    return EarlierSweep(problem.name, [trial.params for trial in trials], {"loss": losses})


def related(problem: Judged, listed: Sequence[Judged]) -> list[Judged]:
    """The other problems of its family."""
    family = problem.name.partition("_")[0]
    return [p for p in listed if p.name.startswith(f"{family}_") and p.name != problem.name]


def made(
    name: str,
    problem: Judged,
    sweeps: Mapping[str, EarlierSweep],
    listed: Sequence[Judged],
    seed: int,
) -> BayesSuggester:
    """The contestant of one run."""
    kind = name.partition("+")[2]
    known = [sweeps[other.name] for other in related(problem, listed)] if kind else []
    if kind == "unrelated":
        rng = np.random.default_rng(zlib.crc32(problem.name.encode()))
        known = [
            EarlierSweep(s.name, problem.space.sample(rng, len(s.params)), s.losses) for s in known
        ]
    context = SearchContext(Domain(problem.space), earlier=known)
    return BayesSuggester(problem.space, parse_goals("minimize loss"), seed=seed, context=context)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Regret of each contestant, and its paired difference from `bayes` without."""
    known, code = held_out.scales(), fingerprint("bayes")
    runs: dict[str, held_out.Runs] = {name: {} for name in CONTESTANTS}
    for row in rows:
        if row["code"] == code:
            found = held_out.regrets(row, known[row["problem"]])
            runs[row["suggester"]][row["problem"], row["seed"]] = found
    lines = []
    for name, found in runs.items():
        count = len(held_out.AT) if found else 0
        means = " ".join(f"{held_out.mean_regret(found, i):7.3f}" for i in range(count))
        gaps = [str(held_out.difference(found, runs["bayes"], i)) for i in range(count)]
        lines.append(
            f"{name:16s} ({len(found)}) {means}   {', '.join(gaps) if '+' in name else ''}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    options = benchmark_parser(__doc__, "one table, one seed, 10 trials")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--rows", type=Path, default=ROWS)
    options.add_argument("--minutes", type=float, default=math.inf, help="begin no run later")
    given = options.parse_args()
    given.contestants = CONTESTANTS
    one_thread()
    listed = held_out.problems("tables")
    targets = [problem for problem in listed if related(problem, listed)]
    if given.quick:
        targets, given.seeds = targets[:1], 1
    if not given.table:
        sweeps = {problem.name: earlier_sweep(problem) for problem in listed}
        code = fingerprint("bayes")
        for name, problem, seed in missing(
            given, targets, KEYS, lambda name, problem, seed: (problem.name, name, seed, code)
        ):
            trials = 10 if given.quick else held_out.AT[-1]
            suggester = made(name, problem, sweeps, listed, seed)
            row = {**held_out.run(name, problem, seed, trials, suggester), "code": code}
            print(f"{name:16s} {problem.name:28s} {seed} {row['score']}", flush=True)
            if not given.quick:
                store.append(given.rows, row)
    print(table(store.read(given.rows)))


if __name__ == "__main__":
    main()
