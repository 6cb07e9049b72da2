"""Predictions: how well the surrogate of `bayes` predicts configurations that it has not seen.

    python benchmarks/suggesters/predict.py [--rules trend,pair_kernel]    flipped, one by one
    python benchmarks/suggesters/predict.py --table [--check]                  the stored rows

Histories are drawn without a suggester: random configurations, then mostly changes of good ones, as
in a search. The surrogate predicts random configurations and others near the best. The log density
is that of the observed loss in units of (median - best) of the history, averaged over the
hyperparameter vectors, at least `MIN_LOG_DENSITY`. Runs are paired: every variant sees the same
histories. A density costs a hundredth of a search, so it selects what `ablate.py` then measures in
searches.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import math
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import torch

from automl.core.trial import Trial
from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.bayes.model.data import TrialReader, loss_of
from automl.suggesters.bayes.model.posterior import MetricPosterior
from automl.suggesters.bayes.model.surrogates import Surrogates
from automl.suggesters.domain import Domain
from benchmarks.common import store
from benchmarks.common.bounds import Claim, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import Row
from benchmarks.suggesters import problems
from benchmarks.suggesters.contestants import RULES, flipped, policy_of
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.problems import Problem
from benchmarks.suggesters.suggesters import one_thread

ROWS: Final = store.RESULTS / "predictions.jsonl"
KEYS: Final = ("problem", "suggester", "seed", "code", "size")
SIZES: Final = (12, 25, 45)
SEEDS: Final = 2
# The rules that change the surrogate of a single goal.
MODEL_RULES: Final = (
    "learned_direction",
    "trend",
    "pair_kernel",
    "knee_transform",
    "scaled_to_active",
)
NUM_RANDOM: Final = 8  # first configurations of a history
NUM_TESTED: Final = 60  # random configurations, and as many near the best
GOOD: Final = 0.3  # share of the tested configurations that are the good ones
MIN_LOG_DENSITY: Final = -8.0  # log density of a surprise
MEASURES: Final = ("log_density", "log_density_of_good", "rank_correlation")


def main() -> int:
    """Measure, print the table, and judge it if `--check` is given."""
    options = arguments()
    one_thread()
    rows = store.load(ROWS, *KEYS)
    if options.quick:
        names, rules = names_of_problems()[:3], MODEL_RULES[:2]
        rows = {
            (*key, rule): measured(rule, *key)
            for rule in ("", *rules)
            for key in [(name, SIZES[0], 0) for name in names]
        }
    elif not options.table:
        rules = tuple(options.rules)
        measure(rows, ("", *rules), options.seeds)
    found = list(rows.values())
    shown = rules if options.quick else dict.fromkeys((*MODEL_RULES, *map(rule_of, found)))
    effects = {rule: differences(rule, found) for rule in shown if rule}
    print(table(effects))
    return conclude(claims(effects)) if options.check else 0


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = benchmark_parser(__doc__, "two rules on three problems")
    parser.add_argument("--rules", default=list(MODEL_RULES), type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="histories of each problem")
    given = parser.parse_args()
    unknown = [name for rule in given.rules for name in rule.split("+") if name not in RULES]
    if unknown:
        parser.error(f"unknown rule {unknown[0]!r}; choose from {', '.join(RULES)}")
    return given


def names_of_problems() -> list[str]:
    """The problems of the exercise with one goal that is not within a deadline."""
    found = map(problems.load, problems.names())
    return [p.name for p in found if len(p.goals) == 1 and p.goals[0].within is None]


def measure(rows: dict[tuple[object, ...], Row], rules: Sequence[str], seeds: int) -> None:
    """Measure what is missing in `rows`, and store it."""
    for rule in rules:
        for name in names_of_problems():
            for seed in range(seeds):
                for size in SIZES:
                    key = (name, flipped(rule), seed, fingerprint(flipped(rule)), size)
                    if key not in rows:
                        rows[key] = measured(rule, name, size, seed)
                        store.append(ROWS, rows[key])
        print(f"{rule or 'default'}: measured", file=sys.stderr, flush=True)


def measured(rule: str, name: str, size: int, seed: int) -> Row:
    """The row of one history."""
    problem = problems.load(name)
    history, tested = trials_of(problem, size, seed)
    reader = TrialReader(problem.space, problem.goals, [])
    fitters = Surrogates(problem.space, problem.goals, (), seed, policy=policy_of(flipped(rule)))
    posterior = fitters.fit(reader(history)).goals[0]
    found = quality(posterior, problem, tested)
    return {
        "problem": name,
        "suggester": flipped(rule),
        "seed": seed,
        "code": fingerprint(flipped(rule)),
        "size": size,
        **{key: round(value, 4) for key, value in zip(MEASURES, found, strict=True)},
    }


def trials_of(problem: Problem, size: int, seed: int) -> tuple[list[Trial], list[Trial]]:
    """A history of `size` trials with a loss, and the tested trials; failures are left out."""
    rng = np.random.default_rng([seed, zlib.crc32(problem.name.encode())])
    sampler = CandidateSampler(Domain(problem.space))
    history: list[Trial] = []
    while len(history) < size:
        if len(history) < NUM_RANDOM or rng.random() < 0.25:
            drawn = sampler.everywhere(rng, 8)
        else:
            drawn = sampler.near(rng, _best(problem, sampler, history, 3), 8, (0.02, 0.4))
        history += _successes(problem, sampler, drawn[:1], len(history), rng)
    near = sampler.near(rng, _best(problem, sampler, history, 5), NUM_TESTED, (0.02, 0.4))
    points = np.concatenate([sampler.everywhere(rng, NUM_TESTED)[:NUM_TESTED], near])
    return history, _successes(problem, sampler, points, size, rng)


def _best(
    problem: Problem, sampler: CandidateSampler, history: Sequence[Trial], count: int
) -> np.ndarray:
    ranked = sorted(history, key=lambda trial: loss_of(trial, problem.goals[0]))
    return sampler.space.encode([trial.params for trial in ranked[:count]])


def _successes(
    problem: Problem,
    sampler: CandidateSampler,
    points: np.ndarray,
    first: int,
    rng: np.random.Generator,
) -> list[Trial]:
    trials = [
        problem.trial(first + i, params, rng)
        for i, params in enumerate(sampler.space.decode(points))
    ]
    return [trial for trial in trials if math.isfinite(loss_of(trial, problem.goals[0]))]


def quality(
    posterior: MetricPosterior, problem: Problem, tested: Sequence[Trial]
) -> tuple[float, float, float]:
    """Mean log density of the tested trials and of the good ones, and the rank correlation."""
    transform, model = posterior.transform, posterior.model
    assert transform is not None
    losses = np.array([loss_of(trial, problem.goals[0]) for trial in tested])
    unit = problem.space.encode([trial.params for trial in tested])
    mean, variance = model.predict(posterior.encoder(unit))
    variance = variance + model.hyper.noise[:, None]  # type: ignore[union-attr]
    y = torch.from_numpy(transform(losses))
    each = -0.5 * (y - mean).square() / variance - 0.5 * (2 * math.pi * variance).log()
    density = (torch.logsumexp(each, 0) - math.log(len(each))).numpy()
    step = 1e-4 * transform.spread
    slope = (transform(losses + step) - transform(losses - step)) / 2e-4
    density = np.maximum(density + np.log(np.maximum(slope, 1e-12)), MIN_LOG_DENSITY)
    good = losses <= np.quantile(losses, GOOD)
    ranks = np.argsort(np.argsort(np.stack([mean.mean(0).numpy(), losses]), 1), 1)
    return float(density.mean()), float(density[good].mean()), float(np.corrcoef(ranks)[0, 1])


def rule_of(row: Row) -> str:
    """The rules that were flipped, "" if none."""
    return str(row["suggester"]).partition("~")[2]


def differences(rule: str, rows: Iterable[Row]) -> dict[str, np.ndarray]:
    """By measure, default less flipped of each problem: positive if the rule helps."""
    base: dict[tuple[object, ...], Row] = {}
    mine: list[Row] = []
    for row in rows:
        if rule_of(row) == rule:
            mine.append(row)
        elif not rule_of(row):
            base[row["problem"], row["seed"], row["size"], row["code"]] = row
    found: dict[str, dict[str, list[float]]] = {key: {} for key in MEASURES}
    for row in mine:
        other = base.get((row["problem"], row["seed"], row["size"], row["code"]))
        for key in MEASURES if other else ():
            assert other is not None
            found[key].setdefault(row["problem"], []).append(other[key] - row[key])
    return {
        key: np.array([np.mean(group) for group in by_problem.values()])
        for key, by_problem in found.items()
    }


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over problems and its standard error; NaN without any."""
    if len(values) < 2:
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def table(effects: dict[str, dict[str, np.ndarray]]) -> str:
    """A Markdown table; a positive difference says that the rule helps."""
    lines = [
        "| rule, default less flipped | log density | of good ones | rank correlation | problems |",
        "|---|---|---|---|---|",
    ]
    for rule, found in effects.items():
        cells = ["{:+.3f} ± {:.3f}".format(*mean_and_error(found[key])) for key in MEASURES]
        lines.append(f"| {rule} | {' | '.join(cells)} | {len(found[MEASURES[0]])} |")
    return "\n".join(lines)


def claims(effects: dict[str, dict[str, np.ndarray]]) -> list[Claim]:
    """Every rule was measured, and its default makes the density of good ones no worse."""
    found = {rule: mean_and_error(of[MEASURES[1]]) for rule, of in effects.items()}
    missing = [rule for rule, (mean, _) in found.items() if math.isnan(mean)]
    return [
        complete("every rule was measured", missing),
        *(
            Claim(
                f"the default of {rule} does no harm", mean > -error, f"{mean:+.3f} ± {error:.3f}"
            )
            for rule, (mean, error) in found.items()
            if rule not in missing
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
