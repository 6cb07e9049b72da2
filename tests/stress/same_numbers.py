"""Compares the numbers of two commits: suggestions, simulated sweeps, losses of a short training.

    python tests/stress/same_numbers.py BASE [HEAD]      HEAD is the working tree if it is left out
    python tests/stress/same_numbers.py BASE --off trend ends      without rules that BASE lacks

Suggestions: `bayes` on ten benchmark problems, 25 trials one by one, then 6 and 12 at once.
Simulations: sweeps of `automl.simulate` with `curve` and with `asha`, of `bayes` and of `sobol`.
Training: a short translation training on 1 and on 2 ranks; the hash of its weights.

Every difference is printed. The exit status is 1 if there is one, else 0. It takes about 90 seconds
of processor time.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROBLEMS = (
    "failing_memory",
    "failing_combinations",
    "front_curved",
    "categorical_ackley",
    "integer_rosenbrock",
    "noisy_mixed",
    "image_classifier",
    "translation_seconds_to_loss",
    "svm_breast_cancer",
    "tree_pipeline",
)
TRIALS = 25
AT_ONCE = (6, 12)
TRAINING = ("max_updates=30",)
PARTS = ("suggestions", "simulations", "training")


def main() -> int:
    """Compare as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit, or a folder that holds a checkout")
    parser.add_argument("head", nargs="?", default=str(ROOT))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--off", nargs="+", default=[], help="rules of `bayes`, off in both")
    parser.add_argument("--print", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.print:
        print(json.dumps(numbers(Path(given.base), given.parts, given.off)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        options = ["--parts", *given.parts, *(["--off", *given.off] if given.off else [])]
        found = [of(tree, options, Path(folder)) for tree in (given.base, given.head)]
    differing = [key for key in found[0] if found[0][key] != found[1].get(key)]
    for key in differing:
        print(f"{key} differs: {first_difference(found[0][key], found[1].get(key))}")
    same = len(found[0]) - len(differing)
    print(f"{same} of {len(found[0])} the same to the last bit, {len(differing)} differ")
    return 1 if differing else 0


def of(tree: str, options: list[str], folder: Path) -> dict[str, Any]:
    """The numbers of one tree, computed in a process whose imports come from it."""
    checkout = Path(tree)
    if not checkout.is_dir():
        checkout = folder / f"checkout-{tree}"
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(checkout), tree],
            check=True,
        )
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(checkout), "--print", *options]
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        )
    finally:
        if not Path(tree).is_dir():
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(checkout)]
            subprocess.run(remove, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def numbers(checkout: Path, parts: list[str], off: list[str]) -> dict[str, Any]:
    """All that is compared, by name."""
    import automl

    if not Path(str(automl.__file__)).is_relative_to(checkout):
        raise SystemExit(f"automl is imported from {automl.__file__}, expected from {checkout}")
    switch_off(off)
    parts_of = {"suggestions": suggestions, "simulations": simulations, "training": training}
    found: dict[str, Any] = {}
    for part in parts:
        found |= dict(parts_of[part]())
    return found


def switch_off(rules: list[str]) -> None:
    """Make `bayes` work without these rules; those that this commit does not have are off."""
    policy = anywhere("automl.suggesters.bayes.suggester")
    suggester = anywhere("automl.suggesters.bayes.suggester").BayesSuggester
    known = [rule for rule in rules if hasattr(policy.ALL_RULES, rule)]
    changed = dataclasses.replace(policy.ALL_RULES, **dict.fromkeys(known, False))
    suggester.__init__.__kwdefaults__["policy"] = changed


def anywhere(*names: str) -> Any:
    """The first of these modules that this commit has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
    raise SystemExit(f"none of {', '.join(names)} is there")


def suggestions() -> Iterator[tuple[str, Any]]:
    """Configurations that `bayes` proposes."""
    import numpy as np

    problems = anywhere("benchmarks.suggesters.problems", "benchmarks.problems")
    suggesters = anywhere("automl.suggesters").SUGGESTERS
    for name in PROBLEMS:
        problem = problems.load(name)
        arguments = (problem.space, problem.goals, problem.constraints)
        suggester = suggesters.get("bayes")(*arguments, seed=1)
        noise = np.random.default_rng([1, zlib.crc32(name.encode())])
        trials: list[Any] = []
        while len(trials) < TRIALS:
            params = suggester.suggest(trials, [])[0]
            trials.append(problem.trial(len(trials), params, noise))
        yield f"suggestions {name}", [plain(trial.params) for trial in trials]
        for count in AT_ONCE:
            found = suggester.suggest(trials, [], count)
            yield f"suggestions {name}, {count} at once", [plain(params) for params in found]


def simulations() -> Iterator[tuple[str, Any]]:
    """Trajectories and trials of sweeps on a virtual clock."""
    import automl

    tables = anywhere("benchmarks.stoppers.curve_problems", "benchmarks.curve_problems")
    pairs = (("digits", "curve"), ("recurrent", "asha"))
    for suggester, (name, stopper) in itertools.product(("bayes", "sobol"), pairs):
        table = tables.Table.load(name)
        result = automl.simulate(
            table.replay,
            table.space,
            goals="minimize loss",
            workers=4,
            trials=40,
            seconds=1e9,
            suggester=suggester,
            stopper=stopper,
            max_steps=table.num_steps,
            seed=2,
        )
        trials = [[plain(t.params), str(t.state), t.started, t.ended] for t in result.trials]
        yield (
            f"simulation {name}, {suggester}, {stopper}: trajectory",
            [list(p) for p in result.trajectory],
        )
        yield f"simulation {name}, {suggester}, {stopper}: trials", trials


def training() -> Iterator[tuple[str, Any]]:
    """Final metrics and weights of a short translation training."""
    command = [sys.executable, "-m", "workers", "translation", "train"]
    if importlib.util.find_spec("workers.__main__") is None:
        command = [sys.executable, "-m", "workers.workloads.translation", "train"]
    for ranks in (["parallelism=single"], ["parallelism=ddp", "ranks=2"]):
        out = Path(tempfile.mkdtemp(dir=Path.cwd()))
        told = subprocess.run(
            [*command, *TRAINING, *ranks, "--out", str(out)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        ending = next(json.loads(line) for line in told.splitlines() if line.startswith("{"))
        metrics = {k: v for k, v in ending["metrics"].items() if is_number_of_training(k)}
        weights = sorted(out.rglob("model.safetensors"))
        hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in weights]
        yield f"training {' '.join(ranks)}: metrics", metrics
        yield f"training {' '.join(ranks)}: weights", hashes


def is_number_of_training(name: str) -> bool:
    """Whether a metric is the same in every run; `train_loss` is of the seconds since a report."""
    return not any(word in name for word in ("second", "memory", "train_loss"))


def plain(params: Any) -> dict[str, Any]:
    """A configuration as JSON keeps it, in an order that does not depend on the commit."""
    return {key: params[key] for key in sorted(params)}


def first_difference(one: Any, other: Any) -> str:
    """Where two values differ first."""
    if isinstance(one, list) and isinstance(other, list):
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            if a != b:
                return f"at {index}: {a} and {b}"
    return f"{one} and {other}"


if __name__ == "__main__":
    sys.exit(main())
