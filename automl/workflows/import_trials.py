"""Trials from elsewhere as prior knowledge of a sweep: a CSV file, an Optuna study, an earlier sweep.

A source is written as `trials.csv`, `optuna:URL#STUDY` (such as `optuna:sqlite:///old.db#resnet`) or `sweep:NAME`.
What is not legal in the sweep's space is left out and counted.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automl.core.events import Begun, Ended, Proposed
from automl.core.goals import Goal
from automl.core.trial import TrialState
from automl.errors import FAILURE_KINDS, UsageError
from automl.ledger import Ledger
from search_spaces import Choice, Int, Space
from search_spaces.parameters import Parameter, Value
from workers.protocol import Ending, Outcome

SOURCE = "added"


@dataclass(frozen=True)
class Finished:
    """A trial that ended elsewhere: what was tried, and its metrics or how it failed."""

    params: Mapping[str, Value]
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class Prior:
    """What a source holds for a sweep: the trials that fit, and why others do not (reason to how many)."""

    trials: Sequence[Finished]
    left_out: Mapping[str, int]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{len(self.trials)} trials added" + (f", left out: {reasons}" if reasons else "")


def read(source: str, space: Space, goals: Sequence[Goal], ledger: Ledger | None = None) -> Prior:
    """The finished trials of a source that tell something about these goals in this space.

    Args:
        ledger: where `sweep:NAME` is looked for.

    Raises:
        UsageError: the source is malformed, is not there, or fits nowhere.
    """
    kind, _, rest = source.partition(":")
    if kind == "optuna":
        found = _of_optuna(rest, goals)
    elif kind == "sweep":
        if ledger is None:
            raise UsageError(f"{source}: there is no store to look for the sweep in")
        found = [
            Finished(t.params, t.metrics, t.failure)
            for t in ledger.trials(rest)
            if t.state.finished
        ]
    else:
        found = _of_csv(Path(source), space)
    return _fitting(found, space, goals)


def add(ledger: Ledger, sweep: str, trials: Iterable[Finished]) -> int:
    """Record finished trials in a sweep that does not run; how many these were."""
    recorder = ledger.acquire(sweep)
    count = 0
    try:
        at = ledger.snapshot(sweep).seconds
        for trial in trials:
            number, count = len(recorder.trials), count + 1
            ending = Ending.FAILED if trial.failure else Ending.COMPLETED
            state = TrialState.FAILED if trial.failure else TrialState.COMPLETED
            outcome = Outcome(number, 1, ending, dict(trial.metrics), trial.failure)
            recorder.apply(Proposed(number, dict(trial.params), SOURCE, at))
            recorder.apply(Begun(number, 1, at))
            recorder.apply(Ended(outcome, state, trial.failure, at=at))
        recorder.commit(state="interrupted")
    finally:
        ledger.release(sweep)
    return count


def _fitting(found: Iterable[Finished], space: Space, goals: Sequence[Goal]) -> Prior:
    kept: list[Finished] = []
    left_out: dict[str, int] = {}
    for trial in found:
        params = space.complete(
            {name: v for name, v in trial.params.items() if name in space.parameters}
        )
        reason = None
        if not space.legal(params):
            reason = "outside of the space"
        elif trial.failure is None and not any(
            math.isfinite(trial.metrics.get(g.metric, math.nan)) for g in goals
        ):
            reason = f"without {' or '.join(goal.metric for goal in goals)}"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            kept.append(Finished(params, trial.metrics, trial.failure))
    return Prior(kept, left_out)


def _of_csv(path: Path, space: Space) -> list[Finished]:
    """A row a trial: columns named as parameters and metrics, or `params.*` and `metrics.*` as pandas has them."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as CSV: {error}") from error
    return [_row(path, number, row, space) for number, row in enumerate(rows, start=2)]


def _row(path: Path, line: int, row: Mapping[str | None, Any], space: Space) -> Finished:
    params: dict[str, Value] = {}
    metrics: dict[str, float] = {}
    failure = str(row.get("failure") or "") or None
    if failure is not None and failure not in FAILURE_KINDS:
        raise UsageError(
            f"{path}, line {line}: a failure is one of {', '.join(FAILURE_KINDS)}, got {failure!r}"
        )
    for key, text in row.items():
        if key is None or text in (None, "") or key == "failure":
            continue
        name = key.removeprefix("params.").removeprefix("metrics.")
        if name in space.parameters and not key.startswith("metrics."):
            params[name] = _value(path, line, space.parameters[name], str(text))
        else:
            try:
                metrics[name] = float(text)
            except ValueError:
                continue  # a column of words that nobody asked for
    return Finished(params, metrics, failure)


def _value(path: Path, line: int, parameter: Parameter, text: str) -> Value:
    if isinstance(parameter, Choice):
        known = {str(choice): choice for choice in parameter.choices}
        known |= {f"{float(c):g}": c for c in parameter.choices if isinstance(c, int | float)}
        return known.get(text, text)
    try:
        number = float(text)
    except ValueError as error:
        raise UsageError(
            f"{path}, line {line}: {parameter.name} must be a number, got {text!r}"
        ) from error
    return int(number) if isinstance(parameter, Int) and number.is_integer() else number


def _of_optuna(address: str, goals: Sequence[Goal]) -> list[Finished]:
    """The finished trials of a study; its values are those of the goals, in order."""
    import optuna

    url, hash_, name = address.rpartition("#")
    if not hash_:
        raise UsageError(
            f"a study is optuna:URL#NAME, such as optuna:sqlite:///old.db#resnet, got {address!r}"
        )
    try:
        study = optuna.load_study(study_name=name, storage=url)
    except Exception as error:  # of SQLAlchemy, of Optuna, or a KeyError
        raise UsageError(f"the study {name!r} cannot be read from {url}: {error}") from error
    return from_study(study, goals)


def from_study(study: Any, goals: Sequence[Goal]) -> list[Finished]:
    """The finished trials of an `optuna.Study`; raises UsageError where it has another number of goals."""
    if len(study.directions) != len(goals):
        raise UsageError(
            f"the study has {len(study.directions)} values a trial, the sweep {len(goals)} goals"
        )
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "COMPLETE":
            metrics = {goal.metric: float(v) for goal, v in zip(goals, trial.values, strict=True)}
            found.append(Finished(trial.params, metrics))
        elif trial.state.name == "FAIL":
            found.append(Finished(trial.params, {}, "crashed"))
    return found
