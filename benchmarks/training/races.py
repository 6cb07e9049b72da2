"""Sweeps and races of the workloads beside plain loops, in pieces that can be continued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import automl
from benchmarks.common.bounds import Claim, at_least, at_most
from benchmarks.common.paired import interleaved, ratios
from benchmarks.training.contests import LESS_ACCURATE, Contest


class Book:
    """The results so far: JSON in a file, or in memory if there is no file."""

    def __init__(self, path: Path | None, setting: Mapping[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {"setting": dict(setting), "results": {}}
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            if found.get("setting") != self.content["setting"]:
                other = found.get("setting")
                raise SystemExit(f"{path} has results of another run, {other}; use another file")
            self.content = found

    def of(self, name: str) -> dict[str, Any]:
        """The results of a contest; changing them changes the book."""
        return self.content["results"].setdefault(name, {"trials": [], "taken": {}, "accuracy": {}})

    def write(self) -> None:
        """Write the file, after each piece."""
        if self.path is not None:
            temporary = self.path.with_suffix(".part")
            temporary.write_text(json.dumps(self.content, indent=1) + "\n")
            temporary.replace(self.path)


def sweep(contest: Contest, trials: int, done: list[dict[str, Any]], book: Book) -> dict[str, Any]:
    """Let the default suggester find the fastest configuration; `done` has its trials so far."""
    optimizer = automl.Optimizer(
        contest.space(), "minimize seconds_each", contest.constraints, seed=0
    )
    for known in done:
        optimizer.add(known["params"], known["metrics"], failure=known["failure"])
    while len(done) < trials:
        trial = optimizer.ask()
        outcome = contest.attempt(trial.params, contest.fixed, contest.train_seconds)
        metrics = (
            None
            if outcome.failure
            else {"seconds_each": contest.seconds(outcome.metrics), **outcome.metrics}
        )
        if metrics is None:
            optimizer.fail(trial, str(outcome.failure))
        else:
            optimizer.tell(trial, metrics)
        taken = outcome.message if metrics is None else f"{metrics['seconds_each']:.5g}"
        print(f"  trial {len(done)}: {taken} {dict(trial.params)}", flush=True)
        done.append({"params": dict(trial.params), "metrics": metrics, "failure": outcome.failure})
        book.write()
    best = optimizer.best
    return dict(best.params) if best else {}


def compete(
    name: str, contest: Contest, counts: tuple[int, int], accuracy: bool, book: Book
) -> list[Claim]:
    """Run the missing parts of a contest: a sweep, a race, and accuracies if asked for.

    Args:
        name: of the contest in the book.
        contest: the loop and the workload.
        counts: trials of the sweep, and rounds of the race.
        accuracy: whether to compare accuracies.
        book: the results so far.
    """
    print(f"\n{contest.title}, CPU {contest.unit}", flush=True)
    result = book.of(name)
    (trials, rounds) = counts
    found = sweep(contest, trials, result["trials"], book)
    racers = {"plain": contest.plain, "default": contest.ours({}), "best": contest.ours(found)}
    while (first := len(result["taken"].get("plain", []))) < rounds:
        for racer, seconds in interleaved(racers, 1, first).items():
            result["taken"].setdefault(racer, []).extend(seconds)
        book.write()
    ratio = ratios(result["taken"], "plain")
    for racer, seconds in result["taken"].items():
        figures = f"{min(seconds):10.5g} at best, ratio to plain {ratio[racer]:.3f}"
        print(f"  {racer:8s} {figures}", flush=True)
    print(f"  best: {found}", flush=True)
    bounds = {"default": contest.default_bound, "best": contest.best_bound}
    claims = [
        at_most(f"{contest.title}: {racer}, ratio to the plain loop", ratio[racer], bound)
        for racer, bound in bounds.items()
    ]
    if accuracy and contest.accuracy:
        reached = accuracies(contest, found, result["accuracy"], book)
        print(f"  test accuracy after {contest.epochs} epochs: {reached}", flush=True)
        limit = reached["plain"] - LESS_ACCURATE
        claims.append(at_least(f"{contest.title}: accuracy", min(reached.values()), limit))
    within = all(claim.holds for claim in claims)
    result.update(title=contest.title, unit=contest.unit, ratio=ratio, best=found, within=within)
    book.write()
    return claims


def accuracies(
    contest: Contest, found: Mapping[str, Any], reached: dict[str, float], book: Book
) -> dict[str, float]:
    """Test accuracies after the same epochs on the same data; missing ones are measured."""
    assert contest.accuracy is not None
    plain = contest.accuracy
    racers = {"plain": lambda: plain(contest.epochs), "default": lambda: contest.test_accuracy({})}
    racers["best"] = lambda: contest.test_accuracy(found)
    for name, race in racers.items():
        if name not in reached:
            reached[name] = race()
            book.write()
    return reached
