"""Ablation: the effect of each rule of `bayes`, flipped alone, on regret and failures.

    python benchmarks/suggesters/ablate.py [--rules draws,demand+smoothed]
    python benchmarks/suggesters/ablate.py --table [--check]        the stored rows

A rule is a switch of `Policy` in `automl/suggesters/bayes/suggester.py`; those joined by `+` are
flipped together.
Each rule is measured on the problems of the exercise on which it can act, with the seeds of the
default suggester, so that differences are paired. Measurement goes on where it was interrupted.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.common import store
from benchmarks.common.bounds import Claim, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import Row
from benchmarks.suggesters import problems
from benchmarks.suggesters.contestants import RULES, flipped
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.loop import run
from benchmarks.suggesters.scoring import scales
from benchmarks.suggesters.suggesters import one_thread

ROWS: Final = store.RESULTS / "ablation.jsonl"
TRIALS: Final = 50
SEEDS: Final = 10
# The cheapest problems first. Those that every variant solves say nothing and are left out.
PLAIN: Final = (
    "svm_breast_cancer",
    "integer_rosenbrock",
    "noisy_mixed",
    "noisy_hartmann",
    "tree_pipeline",
    "boosting_diabetes",
    "sgd_breast_cancer",
    "svr_diabetes",
    "neighbours_digits",
    "sparse_twenty",
    "boosting_breast_cancer",
    "mlp_digits",
    "forest_digits",
    "plateaus_steps",
    "integer_quadratic",
    "categorical_ackley",
)
FAILING: Final = (
    "failing_combinations",
    "failing_deadline",
    "failing_memory",
    "failing_divergence",
    "throughput",
    "mesh_sixteen_gpus",
)
# The problems on which a rule can act, if not PLAIN and then FAILING.
WHERE: Final = {"demand": FAILING, "options": FAILING}


Defaults = dict[tuple[str, int, str], Row]


@dataclass(frozen=True)
class Effect:
    """What flipping a rule changes: flipped less default, so that a positive number is a loss.

    Args:
        rule: the flipped rules.
        at: number of trials.
        regret: mean difference of the normalised regret of what is recommended, over problems and
            seeds.
        error: its standard error over seeds.
        search: the same difference of the best visited configuration; the choice among the visited
            ones is the rest.
        failed: mean difference of the share of failed trials.
        num_problems: how many problems were measured.
        num_seeds: the fewest seeds of a problem.
    """

    rule: str
    at: int
    regret: float
    error: float
    search: float
    failed: float
    num_problems: int
    num_seeds: int


def main() -> int:
    """Measure, print the table, and judge it if `--check` is given."""
    options = arguments()
    one_thread()
    if options.quick:
        found = [measured(rule, name, 0) for rule in RULES[:3] for name in where(rule)[:2]]
        base = by_run(measured("", name, 0) for name in {row["problem"] for row in found})
        effects = [effect(rule, found, base, TRIALS) for rule in RULES[:3]]
    else:
        if not options.table:
            measure(options)
        rows = store.load(ROWS, *store.KEYS).values()
        shown = list(dict.fromkeys([*RULES, *(rule_of(row) for row in rows if rule_of(row))]))
        base = default_rows()
        effects = [effect(rule, rows, base, at) for rule in shown for at in (25, TRIALS)]
    kept = [item for item in effects if item is not None]
    print(table(kept))
    return conclude(claims(kept)) if options.check else 0


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = benchmark_parser(__doc__, "three rules on two problems each")
    parser.add_argument("--rules", default=None, help="comma-separated; default all")
    parser.add_argument("--problems", default=None, help="comma-separated; default by the rule")
    parser.add_argument(
        "--num-problems", type=int, default=20, help="the first so many; default 20"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run later")
    given = parser.parse_args()
    given.rules = given.rules.split(",") if given.rules else list(RULES)
    unknown = [name for rule in given.rules for name in rule.split("+") if name not in RULES]
    if unknown:
        parser.error(f"unknown rule {unknown[0]!r}; choose from {', '.join(RULES)}")
    given.problems = given.problems.split(",") if given.problems else None
    unknown = [name for name in given.problems or () if name not in problems.names()]
    if unknown:
        parser.error(f"unknown problem {unknown[0]!r}; choose from {', '.join(problems.names())}")
    return given


def where(rule: str) -> list[str]:
    """The problems on which one of the flipped rules can act."""
    groups = [WHERE.get(name, PLAIN + FAILING) for name in rule.split("+")]
    return list(dict.fromkeys(name for group in groups for name in group))


def measure(options: argparse.Namespace) -> None:
    """Measure the missing runs, rule by rule; the default suggester too, if it has no row."""
    started = time.perf_counter()
    known = store.load(ROWS, *store.KEYS)
    base = default_rows()
    for rule in options.rules:
        for name in (options.problems or where(rule))[: options.num_problems]:
            for seed in range(options.seeds):
                for flips in ("", rule):
                    key = (name, flipped(flips), seed, fingerprint(flipped(flips)))
                    if key in known or (not flips and (name, seed, key[3]) in base):
                        continue
                    if time.perf_counter() - started > 60 * options.minutes:
                        return
                    known[key] = measured(flips, name, seed)
                    store.append(ROWS, known[key])
                    print(*key[:3], known[key]["regret"][-1], flush=True)


def measured(rule: str, name: str, seed: int) -> Row:
    """The row of one run with some rules flipped."""
    return run(flipped(rule), problems.load(name), scales()[name], seed, TRIALS)


def rule_of(row: Row) -> str:
    """The rules that were flipped in a run, "" if none."""
    return str(row["suggester"]).partition("~")[2]


def default_rows() -> Defaults:
    """The rows of the default suggester, by problem, seed and code."""
    rows = [*store.read(store.ROWS), *store.read(ROWS)]
    return by_run(row for row in rows if row["suggester"] == "bayes")


def by_run(rows: Iterable[Row]) -> Defaults:
    """Rows by problem, seed and code."""
    return {(row["problem"], row["seed"], row["code"]): row for row in rows}


def effect(rule: str, rows: Iterable[Row], base: Defaults, at: int) -> Effect | None:
    """The paired differences of one rule after `at` trials; None without rows.

    Both runs of a pair have the same code. Pairs of an older version count as well.
    """
    regrets: dict[str, list[float]] = {}
    failed: dict[str, list[float]] = {}
    search: dict[str, list[float]] = {}
    for row in rows:
        other = base.get((row["problem"], row["seed"], row["code"]))
        if rule_of(row) == rule and other is not None:
            mine, theirs = row["at"].index(at), other["at"].index(at)
            name = row["problem"]
            regrets.setdefault(name, []).append(row["regret"][mine] - other["regret"][theirs])
            both = [one.get("visited", one["regret"]) for one in (row, other)]
            search.setdefault(name, []).append(both[0][mine] - both[1][theirs])
            failed.setdefault(name, []).append((row["failed"][mine] - other["failed"][theirs]) / at)
    if not regrets:
        return None
    errors = [np.var(group, ddof=1) / len(group) for group in regrets.values() if len(group) > 1]
    return Effect(
        rule,
        at,
        float(np.mean([np.mean(group) for group in regrets.values()])),
        float(np.sqrt(np.sum(errors)) / len(regrets)) if errors else float("nan"),
        float(np.mean([np.mean(group) for group in search.values()])),
        float(np.mean([np.mean(group) for group in failed.values()])),
        len(regrets),
        min(map(len, regrets.values())),
    )


def table(effects: Sequence[Effect]) -> str:
    """A Markdown table; a positive difference says that the rule helps."""
    lines = [
        "| flipped rule | trials | regret, flipped less default | search | choice | failed "
        "| problems | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {item.rule} | {item.at} | {item.regret:+.4f} ± {item.error:.4f} | {item.search:+.4f} "
        f"| {item.regret - item.search:+.4f} | {item.failed:+.1%} "
        f"| {item.num_problems} | {item.num_seeds} |"
        for item in effects
    ]
    return "\n".join(lines)


def claims(effects: Sequence[Effect]) -> list[Claim]:
    """Every rule was measured, and turning it off costs more than its standard error."""
    final = [item for item in effects if item.at == TRIALS and "+" not in item.rule]
    known = {item.rule for item in final}
    missing = [rule for rule in RULES if rule not in known]
    return [
        complete("every rule was measured", missing),
        *(
            Claim(
                f"{item.rule} helps",
                bool(item.regret > item.error),
                f"{item.regret:+.4f} beside a standard error of {item.error:.4f}",
            )
            for item in final
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
