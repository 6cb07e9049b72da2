"""What earlier sweeps teach a search.

    python benchmarks/suggesters/warm_starts.py --part tables
    python benchmarks/suggesters/warm_starts.py --part subset --contestants bayes,bayes+related
    python benchmarks/suggesters/warm_starts.py --part subset --table

`bayes+related` learns from a sweep on each other data set of the same family, `bayes+unrelated`
from random configurations with the losses of these sweeps. `tpe+related` and `optuna-gp+related`
try the best configurations of these sweeps first, as with Optuna's `enqueue_trial`.
`~RULE` at the end flips a rule of the policy.
Fixed sizes: 20 problems of the subset or the recorded tables, 3 seeds. The scores are those of
`held_out.py`.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from benchmarks.suggesters import held_out  # first: it sets the number of threads

import numpy as np  # isort: skip

from automl.core.goals import parse_goals
from automl.core.trial import Trial
from automl.suggesters.base import EarlierSweep, SearchContext, Suggester
from automl.suggesters.bayes.candidates import NUM_TRANSFERRED
from automl.suggesters.bayes.suggester import BayesSuggester
from automl.suggesters.domain import Domain
from automl.suggesters.user_prior import best_of
from benchmarks.common import store
from benchmarks.common.missing import missing
from benchmarks.common.options import benchmark_parser
from benchmarks.suggesters.contestants import make, policy_of
from benchmarks.suggesters.earlier_sweeps import earlier_sweep
from benchmarks.suggesters.fingerprint import present_fingerprint
from benchmarks.suggesters.held_out import KEYS, Judged
from benchmarks.suggesters.suggesters import one_thread
from search_spaces import Space
from workers.protocol import Params

ROWS: Final = store.RESULTS / "warm_starts.jsonl"
CONTESTANTS: Final = ("bayes", "bayes+related", "bayes+unrelated")
SEEDS: Final = 3


def family(problem: Judged) -> str:
    """The name of the family of models that a problem tunes."""
    return problem.name.partition("_")[0]


def unrelated(sweep: EarlierSweep, space: Space) -> EarlierSweep:
    """Random configurations with the losses of a sweep."""
    rng = np.random.default_rng(zlib.crc32(sweep.name.encode()))
    return EarlierSweep(sweep.name, space.sample(rng, len(sweep.params)), sweep.losses)


class Enqueued(Suggester):
    """A suggester that is given the first configurations."""

    name = "enqueued"

    def __init__(self, suggester: Suggester, first: Sequence[Params]) -> None:
        super().__init__(suggester.space, suggester.goals, seed=suggester.seed)
        self.suggester, self.first = suggester, first

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        if len(history) < len(self.first):
            return [self.first[len(history)]]
        return self.suggester.suggest(history, pending, count)


def made(name: str, problem: Judged, listed: Sequence[Judged], seed: int) -> Suggester:
    """The contestant of one run.

    Args:
        listed: every problem, for earlier sweeps.
    """
    goals = parse_goals("minimize loss")
    like = [p for p in listed if family(p) == family(problem) and p.name != problem.name]
    own, _, kind = name.partition("~")[0].partition("+")
    sweeps: list[EarlierSweep] = []
    if kind in ("related", "unrelated"):
        sweeps = [earlier_sweep(other) for other in like]
    if kind == "unrelated":
        sweeps = [unrelated(sweep, problem.space) for sweep in sweeps]
    if own != "bayes":
        turns = zip_longest(*(best_of(sweep, "loss") for sweep in sweeps))
        first = [params for turn in turns for params in turn if params][:NUM_TRANSFERRED]
        peer = make(own, held_out.Task(problem.space), seed)  # type: ignore[arg-type]
        return Enqueued(peer, first)
    context = SearchContext(Domain(problem.space), earlier=sweeps)
    policy = policy_of(name)
    return BayesSuggester(problem.space, goals, seed=seed, context=context, policy=policy)


def measure(
    options: argparse.Namespace, targets: Sequence[Judged], listed: Sequence[Judged]
) -> None:
    """Measure the missing runs."""
    code = present_fingerprint()
    for name, problem, seed in missing(
        options, targets, KEYS, lambda name, problem, seed: (problem.name, name, seed, code)
    ):
        suggester = made(name, problem, listed, seed)
        row = held_out.run(name, problem, seed, options.trials, suggester)
        store.append(options.rows, {**row, "code": code})
        print(f"{name:18s} {problem.name:28s} {seed} {row['score']}", flush=True)


def table(rows: Sequence[Mapping[str, Any]], targets: Sequence[Judged], against: str) -> str:
    """Regret of each contestant, and its paired difference from one of them."""
    known, code = held_out.scales(), present_fingerprint()
    names = {problem.name for problem in targets} & known.keys()
    runs: dict[str, held_out.Runs] = {}
    for row in rows:
        if row["problem"] in names and row["code"] == code:
            found = held_out.regrets(row, known[row["problem"]])
            runs.setdefault(row["suggester"], {})[row["problem"], row["seed"]] = found
    lines = []
    for name, found in sorted(runs.items()):
        count = min(len(found) and len(next(iter(found.values()))), len(held_out.AT))
        means = " ".join(f"{held_out.mean_regret(found, i):7.3f}" for i in range(count))
        gaps = [held_out.difference(found, runs.get(against, {}), i) for i in range(count)]
        told = "" if name == against else ", ".join(map(str, gaps))
        lines.append(f"{name:18s} ({len(found)}) {means}   {told}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    options = benchmark_parser(__doc__, "a table, one seed, 10 trials")
    options.add_argument("--part", default="subset", choices=("subset", "tables"))
    options.add_argument("--contestants", default=CONTESTANTS, type=lambda text: text.split(","))
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--trials", type=int, default=held_out.AT[-1])
    options.add_argument("--rows", type=Path, default=ROWS)
    options.add_argument("--minutes", type=float, default=math.inf, help="begin no run later")
    options.add_argument("--against", default="bayes")
    given = options.parse_args()
    one_thread()
    part = "tables" if given.quick or given.part == "tables" else "develop"
    listed = held_out.problems(part)
    targets = listed[::3] if part == "develop" else listed
    targets = [p for p in targets if sum(family(p) == family(other) for other in listed) > 1]
    if given.quick:
        for name in given.contestants:
            suggester = made(name, targets[0], listed, 0)
            print(name, held_out.run(name, targets[0], 0, 10, suggester)["seen"])
        return
    if not given.table:
        measure(given, targets, listed)
    print(table(store.read(given.rows), targets, given.against))


if __name__ == "__main__":
    main()
