"""One sweep as the page shows it: plain data, kept up to date row by row."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from automl.core import Command, Snapshot, Trial, TrialState, ranking, text
from automl.core.plain_data import compact_json
from automl.core.resuming import Typed
from automl.core.standings import Standings
from automl.suggesters.domain import updated_limits

from .answer import knee
from .terminal_view import state_lines

if TYPE_CHECKING:
    from automl.ledger.follower import Follower

FACTS: Final = (
    "number", "state", "failure", "message", "source", "attempts", "seconds",
    "peak_memory_bytes", "started", "ended", "num_reports", "step",
)  # fmt: skip
MAX_COMMANDS: Final = 30  # that are shown
OF_AGENTS: Final = frozenset({"ask", "report", "tell", "fail"})
MAX_METRICS: Final = 60  # columns of the table
SPARK_POINTS: Final = 40
GROWTH: Final = 1.2  # another answer is worked out at this factor of ended trials


class SweepData:
    """A sweep that somebody looks at. Its methods may be called from any thread.

    Args:
        follower: of its log, or something like it that never changes; name: of the sweep.

    Attributes:
        answer: as `answer.Answer.to_dict` gives it; None until it is known.
        warnings: reasons to doubt it.
    """

    def __init__(self, follower: Follower, name: str) -> None:
        self._follower = follower
        self._lock = Lock()
        self._epoch = 0
        self._base = secrets.randbits(40)  # a page may have the table of another server
        self._changes: list[int] = []  # of each trial: the version of its last change
        self._standings = Standings()
        self._metrics: list[str] = []
        self._params: list[str] = []
        self._answered: tuple[int, str] = (0, "")  # trials and state that the answer is of
        self.answer: dict[str, Any] | None = None
        self.warnings: list[str] = []
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
        self._answered, self.answer = (0, ""), None

    def _take(self, number: int) -> None:
        trial = self.snapshot.trials[number]
        self._standings.take(trial, self.snapshot)
        self._changes[number : number + 1] = [self.version]
        new = [name for name in trial.metrics if name not in self._metrics]
        self._metrics += new[: MAX_METRICS - len(self._metrics)]
        self._params += [name for name in trial.params if name not in self._params]

    def wants_answer(self) -> bool:
        """Whether an answer is to be worked out: there is none, or the trials have grown."""
        with self._lock:
            ended = sum(trial.state.finished for trial in self.snapshot.trials)
            known, state = self._answered
            grown = ended > known * GROWTH or (ended > known and self.snapshot.state != state)
            if not grown and not (ended and state not in ("", self.snapshot.state)):
                return False
            self._answered = ended, self.snapshot.state
            return True

    def take_answer(self, answer: dict[str, Any], warnings: list[str]) -> None:
        """Show another answer."""
        with self._lock:
            self.answer, self.warnings = answer, warnings
            self._answers = {}
            self.version += 1

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
            self._answers[()] = compact_json({**self.describe(), **self._typed()}).encode()
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
            self._answers[since,] = compact_json(self.rows(since)).encode()
        return self._answers[since,]

    def rows(self, since: int = 0) -> dict[str, Any]:
        """The trials that changed after a version: cells in order of the columns."""
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

    def describe(self) -> dict[str, Any]:
        """Everything on the page but the trials."""
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
            "headline": self._headline(best),
            "answer": self.answer,
            "lines": state_lines(snapshot, {}),  # the counts are beside them
            "warnings": self.warnings,
            "best": self._whole(best),
            "first": self._whole(first),
            "has_default": text.has_default(snapshot),
            "pareto": (front := self.pareto()),
            "knee": knee(snapshot, [snapshot.trials[number] for number in front]),
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
            "limits": limits_of(self._follower),
            "commands": latest_commands(self._follower),
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
        """The best so far, until there is an answer; or why there is none."""
        if best is None:
            return text.why_no_best(self.snapshot)
        value = text.number(self._standings.values[best.number][0])
        return f"Best so far: {self.snapshot.goals[0].metric} {value} in trial {best.number}"

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


def limits_of(follower: Follower) -> dict[str, str]:
    """The limit of each parameter that has one, in words."""
    limits = updated_limits([follower.state.limits])
    return {name: str(limit) for name, limit in limits.items()}


def latest_commands(follower: Follower) -> list[dict[str, Any]]:
    """The latest commands of people, the newest one first; `when` in seconds since 1970."""
    people = (one for one in reversed(follower.commands) if one.kind not in OF_AGENTS)
    return [
        {"trial": one.trial, "by": one.by, "when": one.sent, "words": in_words(one)}
        for one in islice(people, MAX_COMMANDS)
    ]


def in_words(command: Command) -> str:
    """What a command asks for."""
    content = command.content
    match command.kind:
        case "stop":
            return "stop the sweep"
        case "limits":
            limits = updated_limits([content])
            found = [f"{name}: {limit}" for name, limit in limits.items()]
            return "limit " + "; ".join(
                found + [f"{name}: released" for name, value in content.items() if value is None]
            )
        case "enqueue":
            return f"try {text.configuration(content)}"
        case "budget":
            parts = (f"{key} {'without end' if v is None else v}" for key, v in content.items())
            return f"budget: {', '.join(parts)}"
    return command.kind.replace("_trial", "")
