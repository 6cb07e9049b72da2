"""How a sweep begins, whoever asks: its spec, trials from elsewhere, configurations to try.

Trials come from `trials.csv`, `optuna:URL#STUDY` (such as `optuna:sqlite:///old.db#resnet`) or
`sweep:NAME`. Those that are not legal in the space of the sweep are left out and counted.
"""

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from automl.control.beginning import create, with_earlier
from automl.control.outcomes import writing
from automl.core import (
    Constraint,
    Ended,
    Goal,
    SpecChanged,
    SweepSpec,
    Trial,
    TrialState,
    ranking,
)
from automl.errors import FAILURE_KINDS, SpaceError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import refuse_password, shown
from search_spaces import Choice, Space
from search_spaces.values import check, number_of, show
from workers.protocol import Ending, Outcome, Params

SOURCE = "added"
MISSING: Final = ("", "nan", "na", "n/a", "<na>", "none", "null")  # words for an empty cell
UNFINISHED: Final = tuple(str(state) for state in TrialState if not state.finished)
Source = str | PathLike[str] | Any  # Any stands for an Optuna study, or a result


def begin(
    ledger: Ledger,
    spec: SweepSpec,
    prior: Sequence[Source] = (),
    configurations: Sequence[Params] = (),
    *,
    rename: bool = False,
    resume: bool = False,
    tell: Callable[[str, bool], None] = lambda text, incomplete: None,
) -> SweepSpec:
    """Create a sweep in a ledger and begin it, whoever asks for it.

    Args:
        prior: sources of finished trials, see `read`; the budget of trials grows by their number.
            Of a sweep that goes on they are passed over.
        configurations: to train after trial 0, before anything is suggested. A parameter that is
            not named has its default.
        rename: a name that is in use gets "-2" or so; else it is refused.
        resume: if there is a sweep of that name, go on with it.
        tell: called with a line about each source of trials, and whether it left some out.

    Returns:
        The spec, under the name of the sweep in the ledger, with a budget for what was imported.

    Raises:
        UsageError: something does not fit the sweep. Then a new sweep is deleted again.
    """
    if resume and ledger.exists(spec.name):
        _go_on(ledger, spec, configurations)
        return _with_budget(ledger, spec) if prior else spec
    imported = [  # before there is a sweep of this name, which is no source of its own
        read(source, spec.space, spec.goals, ledger, spec.constraints) for source in prior
    ]
    try:
        spec = create(ledger, with_earlier(ledger, spec), rename=rename)
    except UsageError:
        if not (resume and ledger.exists(spec.name)):
            raise
        return begin(ledger, spec, prior, configurations, resume=True)  # another process was faster
    if spec.knowledge.earlier:
        tell(f"learns from {spec.knowledge}", False)
    name = spec.name
    try:
        for source, found in zip(prior, imported, strict=True):
            add(ledger, name, found.trials)
            named = isinstance(source, str | os.PathLike)
            tell(f"{source if named else type(source).__name__}: {found}", bool(found.left_out))
        _go_on(ledger, spec, configurations)
        if prior:
            spec = _with_budget(ledger, spec)
            ledger.append(name, SpecChanged(spec.to_dict()))
    except Exception:
        ledger.delete(name)
        raise
    return spec


def _go_on(ledger: Ledger, spec: SweepSpec, wanted: Sequence[Params]) -> None:
    """Enqueue the configurations that the sweep does not have."""
    space = spec.space
    configurations = [space.accept(params) for params in wanted]
    trials = ledger.trials(spec.name) if configurations else []
    seen = {space.key(t.params) for t in trials if space.legal(t.params)}
    keyed = {space.key(params): params for params in configurations}
    new = [params for key, params in keyed.items() if key not in seen]
    default = space.default()
    begun = sum(trial.source != SOURCE for trial in trials)
    count = len(new) + begun + (default is not None and not trials)
    if new and spec.budget.trials is not None and count > spec.budget.trials:
        raise UsageError(
            f"the budget is {spec.budget.trials} trials, and with the {len(new)} enqueued ones "
            f"there are {count} (trial 0 counts): raise it, or enqueue fewer"
        )
    if new and not trials and default is not None:
        enqueue(ledger, spec.name, [default], "default")
        new = [params for params in new if space.key(params) != space.key(default)]
    if new:
        enqueue(ledger, spec.name, new)


def _with_budget(ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    trials = spec.budget.trials
    if trials is None:
        return spec
    added = sum(t.source == SOURCE for t in ledger.trials(spec.name))
    return replace(spec, budget=replace(spec.budget, trials=trials + added))


def enqueue(
    ledger: Ledger, sweep: str, configurations: Sequence[Params], source: str = "enqueued"
) -> None:
    """Add trials to a sweep that is not running. It trains them before any other.

    Raises:
        SpaceError: a configuration is not legal in the sweep's space. Then none is added.
        StoreError: a controller holds the sweep.
    """
    space = ledger.spec(sweep).space
    accepted = [space.accept(params) for params in configurations]
    with writing(ledger, sweep) as writer:
        for params in accepted:
            writer.propose(params, source)


@dataclass(frozen=True)
class FinishedTrial:
    """A trial from elsewhere: its parameters, and its metrics or its kind of failure.

    It may have been `stopped` before its end. In a table its values are `text`.
    """

    params: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    stopped: bool = False
    text: bool = False


@dataclass(frozen=True)
class ImportedTrials:
    """The trials of a source that fit a sweep, and the number of others by reason."""

    trials: Sequence[FinishedTrial]
    left_out: Mapping[str, int]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{len(self.trials)} trials added" + (f", left out: {reasons}" if reasons else "")


def read(
    source: Source,
    space: Space,
    goals: Sequence[Goal],
    ledger: Ledger,
    constraints: Sequence[Constraint] = (),
) -> ImportedTrials:
    """The finished trials of a source that fit a sweep: legal, with a goal's metric or failed.

    Args:
        source: `FILE.csv`, `optuna:URL#STUDY` or `sweep:NAME`; or an `optuna.Study`, or a result.
        space, goals, constraints: of the sweep; ledger: the store of `sweep:NAME`.

    Raises:
        UsageError: the source is malformed or cannot be read.
    """
    check(
        space.parameters, "a prior of trials needs the space: `trial.suggest_...` says it too late"
    )
    named = str(source) if isinstance(source, str | PathLike) else ""
    kind, _, rest = named.partition(":")
    if hasattr(source, "get_trials") and hasattr(source, "directions"):
        found = from_study(source, goals)
    elif hasattr(source, "trials"):
        found = _finished(source.trials, goals, constraints)
    elif kind == "optuna":
        found = _from_optuna(rest, goals)
    elif kind == "sweep":
        found = _finished(ledger.trials(rest), goals, constraints)
    elif kind:
        found = _from_csv(Path(source), space, goals)
    else:
        raise UsageError(
            "a prior is FILE.csv, optuna:URL#STUDY, sweep:NAME, an Optuna study or a result, "
            f"got {show(source)}"
        )
    return _fitting(found, space, goals)


def _finished(
    trials: Iterable[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> list[FinishedTrial]:
    """The trials of another sweep; an imported trial has no reports, so its metrics must count."""
    found = []
    for trial in trials:
        if trial.state.finished:
            values = {goal.metric: ranking.value(trial, goal, constraints) for goal in goals}
            counted = {name: value for name, value in values.items() if value is not None}
            metrics = {} if trial.pruned else {**trial.metrics, **counted}
            stopped = trial.state is TrialState.STOPPED
            found.append(FinishedTrial(trial.params, metrics, trial.failure, stopped))
    return found


def add(ledger: Ledger, sweep: str, trials: Sequence[FinishedTrial]) -> int:
    """Record finished trials in a sweep that is not running; returns their number."""
    with writing(ledger, sweep) as writer:
        for given in trials:
            trial = writer.begin(writer.propose(given.params, SOURCE), slots=0)
            whole = Ending.STOPPED if given.stopped else Ending.COMPLETED
            ending = Ending.FAILED if given.failure else whole
            outcome = Outcome(trial.number, 1, ending, dict(given.metrics), given.failure)
            # What an imported trial is, its source says.
            writer.apply(Ended(outcome, TrialState(ending.value), given.failure, at=writer.now))
    return len(trials)


def _fitting(found: Iterable[FinishedTrial], space: Space, goals: Sequence[Goal]) -> ImportedTrials:
    kept: list[FinishedTrial] = []
    left_out: dict[str, int] = {}
    for trial in found:
        params, reason = trial.params, None
        try:
            params = space.accept(params, text=trial.text, surplus=True)
        except SpaceError:
            reason = "outside of the space"
        lacking = [
            name
            for name, parameter in space.parameters.items()
            if name in params and name not in trial.params
            if not parameter.has_default and parameter.size != 1
        ]
        known = [trial.metrics.get(goal.metric, math.nan) for goal in goals]
        if trial.failure is None and not any(map(math.isfinite, known)):
            lacking = [" or ".join(goal.metric for goal in goals)]
        if not reason and lacking:
            reason = f"without {lacking[0]}"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            kept.append(replace(trial, params=params))
    return ImportedTrials(kept, left_out)


def _from_csv(path: Path, space: Space, goals: Sequence[Goal]) -> list[FinishedTrial]:
    """One trial from each row of a table, such as `Result.to_pandas` or Optuna writes.

    Columns are parameters and metrics, or `params.*` and `metrics.*`; `value` and `value.METRIC`
    are those of goals. A trial that its `state` says has not ended has no metrics.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        what = f"{path} cannot be read as CSV: {error}; a sweep is sweep:NAME or like:NAME"
        raise UsageError(what) from error
    return [_row(path, number, row, space, goals) for number, row in enumerate(rows, start=2)]


def _row(
    path: Path, line: int, row: Mapping[str | None, Any], space: Space, goals: Sequence[Goal]
) -> FinishedTrial:
    known, params, metrics = space.parameters, dict[str, str](), dict[str, float]()
    state = str(row.get("state") or "").lower()
    failed = state in ("fail", "failed")
    failure = str(row.get("failure") or "") or ("crashed" if failed else None)
    if failure is not None and failure not in FAILURE_KINDS:
        raise UsageError(
            f"{path}, line {line}: a failure is one of {', '.join(FAILURE_KINDS)}, got {failure!r}"
        )
    for key, text in row.items():
        if key is None or text is None or key == "failure":
            continue
        marked = {f"params.{key}", f"params_{key}"} & row.keys()  # then `key` is of the trial
        is_own = key in known and not marked
        name = key if is_own else re.sub(r"^(params[._]|metrics\.)", "", key)
        if is_own or (name in known and key.startswith("params")):
            if text.strip().lower() in MISSING and not known[name].legal(text):
                continue
            if not isinstance(known[name], Choice) and number_of(text) is None:
                raise UsageError(f"{path}, line {line}: {name} must be a number, got {text!r}")
            params[name] = text
        elif number_of(text) is not None and state not in UNFINISHED:  # words are no metric
            metrics[name] = float(text)
    for index, goal in enumerate(goals):
        for column in (f"value.{goal.metric}", f"values_{index}", "" if index else "value"):
            if column in metrics and goal.metric not in metrics:
                metrics[goal.metric] = metrics[column]
    return FinishedTrial(params, metrics, failure, state in ("stopped", "pruned"), text=True)


def _from_optuna(address: str, goals: Sequence[Goal]) -> list[FinishedTrial]:
    """The finished trials of a study, whose values are those of the goals, in order."""
    import optuna

    url, hash_, name = address.rpartition("#")
    if not hash_ or "://" not in url:
        lack = "has no :// of a URL" if hash_ else "has no #NAME"  # it may hold a password
        raise UsageError(
            f"a study is optuna:URL#NAME, such as optuna:sqlite:///old.db#resnet; this one {lack}"
        )
    refuse_password(url)
    file = Path(url.partition("sqlite:///")[2])
    if url.startswith("sqlite:///") and not file.is_file():
        raise UsageError(f"there is no study at {url}: {file.absolute()} is no file")
    try:
        # Optuna would make its tables in a database that has none.
        storage = optuna.storages.RDBStorage(url, skip_table_creation=True)
        study = optuna.load_study(study_name=name, storage=storage)
    except Exception as error:  # SQLAlchemy, Optuna and plain KeyErrors
        text = " ".join(str(error).split())[:300]
        raise UsageError(
            f"the study {name!r} cannot be read from {shown(url)}: {type(error).__name__}: {text}"
        ) from error
    return from_study(study, goals)


def from_study(study: Any, goals: Sequence[Goal]) -> list[FinishedTrial]:
    """The finished trials of an `optuna.Study`.

    Raises:
        UsageError: the study has another number of goals.
    """
    if len(study.directions) != len(goals):
        raise UsageError(
            f"the study has {len(study.directions)} values a trial, the sweep {len(goals)} goals"
        )
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "COMPLETE":
            metrics = {goal.metric: float(v) for goal, v in zip(goals, trial.values, strict=True)}
            found.append(FinishedTrial(trial.params, metrics))
        elif trial.state.name == "FAIL":
            found.append(FinishedTrial(trial.params, {}, "crashed"))
    return found
