"""One sweep as the pages show it: plain data, kept up to date row by row."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from automl.core import Snapshot, Trial, TrialState, ranking, text
from automl.core.plain_data import compact_json
from automl.core.resuming import Typed
from automl.core.standings import Standings
from automl.report import caveats, summary
from automl.report.terminal_view import state_lines

from .command_log import CommandLog

if TYPE_CHECKING:
    from automl.ledger import Ledger

FACTS: Final = (
    "number", "state", "failure", "message", "source", "attempts", "seconds",
    "peak_memory_bytes", "started", "ended", "num_reports", "step",
)  # fmt: skip
MAX_METRICS: Final = 60  # columns of the table
SPARK_POINTS: Final = 40
GROWTH: Final = 1.02  # the warnings are made again at this factor of ended trials


class FollowedSweep:
    """A sweep that somebody looks at. Its methods may be called from any thread.

    Args:
        ledger: open for reading; name: of the sweep.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._follower = ledger.follow(name)
        self._lock = Lock()
        self._epoch = 0
        self._base = secrets.randbits(40)  # a page may have the table of another server
        self._changes: list[int] = []  # of each trial: the version of its last change
        self._standings = Standings()
        self._metrics: list[str] = []
        self._params: list[str] = []
        self._warnings: tuple[int, str, list[str]] = (-1, "", [])
        self._commands = CommandLog(self._follower)
        self._answers: dict[tuple[int, ...], bytes] = {}  # of this version, for all who look
        self._row: tuple[int, dict[str, Any]] | None = None  # of this version
        self._store = ""
        self.name = name
        self.version = 0
        self.snapshot: Snapshot = None  # type: ignore[assignment]  # `refresh` sets it

    @property
    def epoch(self) -> int:
        """Another one if a table that somebody has cannot be brought up to date."""
        return self._base + self._epoch

    @property
    def num_trials(self) -> int:
        """Number of trials that are held in memory."""
        return len(self._changes)

    def refresh(self) -> None:
        """Read what has changed in the ledger."""
        with self._lock:
            changed: Iterable[int] = self._follower.refresh()
            before = self.snapshot
            self.snapshot = self._follower.snapshot()
            self.version += 1
            self._answers = {}
            if self._epoch != self._follower.epoch or before is None:
                self._begin()
                changed = range(len(self.snapshot.trials))
            for number in changed:
                self._take(number)

    def _begin(self) -> None:
        self._epoch = self._follower.epoch
        self._changes, self._standings = [], Standings()
        goals = [goal.metric for goal in self.snapshot.goals]
        self._metrics = list(dict.fromkeys(goals))
        spec = self.snapshot.spec
        self._params = list(spec.known_space.parameters) if spec else []
        self._warnings = (-1, "", [])

    def _take(self, number: int) -> None:
        trial = self.snapshot.trials[number]
        self._standings.take(trial, self.snapshot)
        self._changes[number : number + 1] = [self.version]
        new = [name for name in trial.metrics if name not in self._metrics]
        self._metrics += new[: MAX_METRICS - len(self._metrics)]
        self._params += [name for name in trial.params if name not in self._params]

    def warn(self) -> bool:
        """Make the warnings again if the trials have grown; True if there are other ones.

        They take a look at every trial, which is why no page waits for them.
        """
        with self._lock:
            snapshot = self.snapshot
            known, state, before = self._warnings
        ended = sum(trial.state.finished for trial in snapshot.trials)
        if known <= ended <= known * GROWTH and state == snapshot.state:
            return False
        assert snapshot.spec is not None, "a ledger knows the spec"
        found = list(caveats.caveats(snapshot, snapshot.spec.known_space))
        with self._lock:
            self._warnings = ended, snapshot.state, found
            self._answers = {}
            self.version += found != before
        return found != before

    # what the pages ask for

    def best(self) -> Trial | None:
        """The best trial by the first goal."""
        number = self._standings.best()
        return None if number is None else self.snapshot.trials[number]

    def pareto(self) -> list[int]:
        """Numbers of the trials on the Pareto front; empty if there is one goal."""
        if len(self.snapshot.goals) < 2:
            return []
        ended = [
            trial
            for trial, values in zip(self.snapshot.trials, self._standings.values, strict=True)
            if None not in values
        ]
        front = ranking.pareto(ended, self.snapshot.goals, self.snapshot.constraints)
        return [trial.number for trial in front]

    def row(self) -> dict[str, Any]:
        """The line of the sweep in the list of sweeps: its result and how it got there."""
        with self._lock:
            if self._row and self._row[0] == self.version:
                return self._row[1]
            best, goal, values = self.best(), self.snapshot.goals[0], self._standings.values
            course = [goal.loss(loss) for loss in self._standings.trajectory()]
            line = {
                "goals": [_goal(one) for one in self.snapshot.goals],
                "best": None if best is None else best.number,
                "value": None if best is None else values[best.number][0],
                "baseline": values[0][0] if values else None,
                "states": self._standings.counts(),
                "spark": text.thinned(course, SPARK_POINTS),
                "share": self.snapshot.share,
                "budget": vars(self.snapshot.budget),
                "workload": self.snapshot.spec.workload if self.snapshot.spec else None,
            }
            self._row = self.version, line
            return line

    def page(self, store: str = "") -> bytes:
        """JSON of everything on the page of the sweep but the trials.

        Args:
            store: as the user wrote it; the same in each call.
        """
        with self._lock:
            self._store = store
            return self._page()

    def table(self, since: int = 0, epoch: int = 0) -> bytes:
        """JSON of the trials that changed after a version: cells in order of the columns.

        Args:
            since, epoch: of the table that the page has; another epoch gets all trials.
        """
        with self._lock:
            return self._rows(since, epoch)

    def update(self, since: int, epoch: int) -> tuple[bytes, bytes, int, int]:
        """JSON of the page and of the trials that changed; version and epoch of both."""
        with self._lock:
            return self._page(), self._rows(since, epoch), self.version, self.epoch

    def _page(self) -> bytes:
        if () not in self._answers:
            self._answers[()] = compact_json({**self._describe(), **self._typed()}).encode()
        return self._answers[()]

    def _typed(self) -> dict[str, Any]:
        """The store as the user wrote it, and lines to type by what they do."""
        spec = self.snapshot.spec
        assert spec is not None, "a ledger knows the spec"
        typed = Typed(self._store or Typed.store)
        first = next(iter(spec.known_space.parameters), "NAME")
        lines = {
            "resume": typed.line(spec),
            "confirm": typed.line(spec, verb="confirm"),
            "widen": replace(typed, changes=(f"space.{first}.high=VALUE",)).line(spec),
        }
        return {"store": self._store, "lines_to_type": lines}

    def _rows(self, since: int, epoch: int) -> bytes:
        since = since if epoch == self.epoch else 0
        if (since,) not in self._answers:
            self._answers[since,] = compact_json(self._table(since)).encode()
        return self._answers[since,]

    def _table(self, since: int) -> dict[str, Any]:
        rows = [
            self._cells(self.snapshot.trials[number])
            for number, version in enumerate(self._changes)
            if version > since
        ]
        return {
            "version": self.version,
            "epoch": self.epoch,
            "whole": since == 0,
            "num_trials": self.num_trials,
            "facts": FACTS,
            "goals": [_goal(goal) for goal in self.snapshot.goals],
            "params": list(self._params),
            "metrics": list(self._metrics),
            "rows": rows,
        }

    def trials(self) -> Sequence[Trial]:
        """Every trial; those that have finished have only the reports that their values need."""
        return self.snapshot.trials

    def value(self, number: int) -> tuple[float | None, ...]:
        """The values of a trial for the goals."""
        return self._standings.values[number]

    def _cells(self, trial: Trial) -> list[Any]:
        facts = [
            trial.number, self._standings.outcomes[trial.number], trial.failure,
            trial.message[:300], trial.source, trial.attempts, trial.seconds,
            trial.peak_memory_bytes, trial.started, trial.ended,
            trial.reports[-1].sequence + 1 if trial.reports else 0,
            trial.reports[-1].step if trial.reports else None,
        ]  # fmt: skip
        given = trial.params  # null is a parameter that is inactive
        params = [
            "none" if given.get(name, "") is None else given.get(name) for name in self._params
        ]
        metrics = [trial.metrics.get(name) for name in self._metrics]
        return [*facts, *self._standings.values[trial.number], *params, *metrics]

    def _describe(self) -> dict[str, Any]:
        snapshot, best = self.snapshot, self.best()
        spec = snapshot.spec
        assert spec is not None, "a ledger knows the spec"
        first = snapshot.trials[0] if snapshot.trials else None
        states = self._standings.counts()
        return {
            "name": self.name,
            "version": self.version,
            "epoch": self.epoch,
            "state": snapshot.state,
            "created": self._follower.created,
            "seconds": snapshot.seconds,
            "host": self._follower.host,
            "goals": [_goal(goal) for goal in snapshot.goals],
            "constraints": [str(constraint) for constraint in snapshot.constraints],
            "budget": vars(snapshot.budget),
            "share": snapshot.share,
            "states": states,
            "failures": self._failures(),
            "headline": self._headline(best),
            "lines": state_lines(snapshot, {}),  # the counts are beside them
            "warnings": self._warnings[2],
            "best": self._whole(best),
            "first": self._whole(first),
            "has_default": text.has_default(snapshot),
            "pareto": self.pareto(),
            "workers": {
                "num": snapshot.num_slots,
                "busy": snapshot.busy_slots,
                "suggesting": snapshot.suggesting,
                "waits_for": snapshot.waits_for,
            },
            "links": web_pages(snapshot.dashboard),
            "space": _parameters(spec.known_space.to_dict()),
            "workload": spec.workload,
            "suggester": spec.suggester,
            "stopper": spec.stopper,
            "seed": spec.seed,
            "limits": self._commands.limits(),
            "commands": self._commands.latest(),
            "running": [self._curve(trial) for trial in self._in(TrialState.RUNNING)[:24]],
        }

    def _whole(self, trial: Trial | None) -> dict[str, Any] | None:
        if trial is None:
            return None
        return {
            **trial.summary(),
            "values": self._standings.values[trial.number],
        }

    def _headline(self, best: Trial | None) -> str:
        """The sentence of the report. If there is a best trial, it needs only that and trial 0."""
        few = [self.snapshot.trials[0], best] if best else self.snapshot.trials
        return summary.headline(replace(self.snapshot, trials=few))

    def _failures(self) -> list[dict[str, Any]]:
        """Each kind of failure with its number of trials and the first of them."""
        first: dict[str, Trial] = {}
        failed = self._in(TrialState.FAILED)
        for trial in failed:
            first.setdefault(trial.failure or "unknown", trial)
        counts = text.failures(failed)
        return [
            {"kind": kind, "count": counts[kind], "trial": one.number, "message": one.message[:500]}
            for kind, one in first.items()
        ]

    def _in(self, state: TrialState) -> list[Trial]:
        return [self.snapshot.trials[number] for number in self._standings.numbers(state)]

    def _curve(self, trial: Trial) -> dict[str, Any]:
        """A running trial with its reports of the first goal's metric."""
        metric = self.snapshot.goals[0].metric
        found = (point.metrics.get(metric, math.nan) for point in trial.reports)
        values = [value for value in found if math.isfinite(value)]
        return {
            "number": trial.number,
            "attempt": trial.attempts,
            "step": trial.reports[-1].step if trial.reports else None,
            "started": trial.started,
            "values": text.thinned(values, SPARK_POINTS),
        }


def _goal(goal: Any) -> dict[str, Any]:
    return {"metric": goal.metric, "maximize": goal.maximize, "text": str(goal)}


def _parameters(space: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = space["parameters"]
    return list(found)


def web_pages(dashboard: str) -> dict[str, str]:
    """Pages of the Ray dashboard; empty if there is none, or if its address is no web page."""
    if not dashboard.startswith(("http://", "https://")):
        return {}
    pages = {"Ray: jobs": "jobs", "actors (trials)": "actors", "logs": "logs", "cluster": "cluster"}
    return {name: f"{dashboard.rstrip('/')}/#/{page}" for name, page in pages.items()}
