"""Sweeps and races of the workloads beside plain loops, piece by piece, so that an ended run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import automl
from benchmarks.common.paired import interleaved, ratios
from benchmarks.training.contests import LESS_ACCURATE, Contest


class Book:
    """What is known so far, as JSON in a file after every piece; in memory alone where there is no file."""

    def __init__(self, path: Path | None, setting: Mapping[str, Any]) -> None:
        self.path, self.content = path, {"setting": dict(setting), "results": {}}
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            if found.get("setting") != self.content["setting"]:
                raise SystemExit(
                    f"{path} holds another run: {found.get('setting')}; name another file"
                )
            self.content = found

    def of(self, name: str) -> dict[str, Any]:
        """What is known of a contest; changing it changes the book."""
        return self.content["results"].setdefault(name, {"trials": [], "taken": {}, "accuracy": {}})

    def write(self) -> None:
        """Called after every piece."""
        if self.path is not None:
            temporary = self.path.with_suffix(".part")
            temporary.write_text(json.dumps(self.content, indent=1) + "\n")
            temporary.replace(self.path)


def sweep(contest: Contest, trials: int, done: list[dict[str, Any]], book: Book) -> dict[str, Any]:
    """The fastest configuration that the default suggester found; `done` are its trials so far."""
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
) -> bool:
    """Sweep, race and judge a contest, as far as the book does not say it yet; whether it is within its bounds.

    Args:
        counts: trials of the sweep, and rounds of the race.
    """
    print(f"\n{contest.title}, CPU {contest.unit}", flush=True)
    result, (trials, rounds) = book.of(name), counts
    found = sweep(contest, trials, result["trials"], book)
    racers = {"plain": contest.plain, "default": contest.ours({}), "best": contest.ours(found)}
    while (first := len(result["taken"].get("plain", []))) < rounds:
        for racer, seconds in interleaved(racers, 1, first).items():
            result["taken"].setdefault(racer, []).extend(seconds)
        book.write()
    ratio = ratios(result["taken"], "plain")
    for racer, seconds in result["taken"].items():
        print(
            f"  {racer:8s} {min(seconds):10.5g} at best, ratio to plain {ratio[racer]:.3f}",
            flush=True,
        )
    print(f"  best: {found}", flush=True)
    within = ratio["default"] <= contest.default_bound and ratio["best"] <= contest.best_bound
    if accuracy and contest.accuracy:
        reached = reach(contest, found, result["accuracy"], book)
        print(f"  test accuracy after {contest.epochs} epochs: {reached}", flush=True)
        within = within and min(reached.values()) >= reached["plain"] - LESS_ACCURATE
    result.update(title=contest.title, unit=contest.unit, ratio=ratio, best=found, within=within)
    book.write()
    return within


def reach(
    contest: Contest, found: Mapping[str, Any], reached: dict[str, float], book: Book
) -> dict[str, float]:
    """Train each for as many epochs on the same data, where it is not known yet what that gives."""
    assert contest.accuracy is not None
    plain = contest.accuracy
    racers = {"plain": lambda: plain(contest.epochs), "default": lambda: contest.reached({})}
    racers["best"] = lambda: contest.reached(found)
    for name, race in racers.items():
        if name not in reached:
            reached[name] = race()
            book.write()
    return reached
