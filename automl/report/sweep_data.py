"""One sweep as the page shows it: plain data, kept up to date row by row."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from automl.core import Command, Goal, Snapshot, Trial, TrialState, ranking, text
from automl.core.arguments import compact_json
from automl.core.text import Typed
from automl.suggesters.domain import updated_limits

from .answer import knee
from .terminal import state_lines

if TYPE_CHECKING:
    from automl.ledger.ledger import Follower

FACTS: Final = (
    "number", "state", "failure", "message", "source", "attempts", "seconds",
    "peak_memory_bytes", "started", "ended", "num_reports", "step",
)  # fmt: skip
OF_AGENTS: Final = frozenset({"ask", "report", "tell", "fail"})
MAX_COMMANDS: Final = 30  # that are shown
MAX_METRICS: Final = 60  # columns of the table
MAX_RUNNING: Final = 24  # trials with a curve
SPARK_POINTS: Final = 40
GROWTH: Final = 1.2  # another answer is worked out at this factor of ended trials


class SweepData:
    """A sweep that somebody looks at. Its methods may be called from any thread.

    Args:
        follower: of its log, or something like it that never changes; name: of the sweep.
        store: as the user wrote it.

    Attributes:
        answer: as `answer.Answer.to_dict` gives it; None until it is known.
        epoch: another one if a table that somebody has cannot be brought up to date.
    """

    def __init__(self, follower: Follower, name: str, store: str = Typed.store) -> None:
        self._follower = follower
        self._lock = RLock()
        self._base = secrets.randbits(40)  # a page may have the table of another server
        self._encoded: dict[object, bytes] = {}  # of this version, for all who look
        self.name = name
        self._store = store
        self.version, self.epoch = 0, -1
        self.snapshot: Snapshot = None  # type: ignore[assignment]  # `refresh` sets it

    def refresh(self) -> None:
        """Read what has changed in the ledger."""
        with self._lock:
            changed: Iterable[int] = self._follower.refresh()
            self.snapshot = self._follower.snapshot()
            self.version += 1
            self._encoded = {}
            if self.epoch != self._base + self._follower.epoch:
                self._begin()
                changed = range(len(self.snapshot.trials))
            for number in changed:
                self._take(number)

    def _begin(self) -> None:
        self.epoch = self._base + self._follower.epoch
        self._changes: list[int] = []  # of each trial: the version of its last change
        self._metrics = list(dict.fromkeys(goal.metric for goal in self.snapshot.goals))
        spec = self.snapshot.spec
        self._params = list(spec.known_space.parameters) if spec else []
        self._answered = 0, ""  # trials and state that the answer is of
        self.answer: dict[str, Any] | None = None

    def _take(self, number: int) -> None:
        trial = self.snapshot.trials[number]
        self._changes[number : number + 1] = [self.version]
        new = [name for name in trial.metrics if name not in self._metrics]
        self._metrics += new[: MAX_METRICS - len(self._metrics)]
        self._params += [name for name in trial.params if name not in self._params]

    def wants_answer(self) -> bool:
        """Whether an answer is to be worked out: there is none, or the trials have grown."""
        with self._lock:
            ended = sum(trial.state.finished for trial in self.snapshot.trials)
            known, state = self._answered
            moved = ended and state not in ("", self.snapshot.state)
            if not moved and ended <= known * GROWTH:
                return False
            self._answered = ended, self.snapshot.state
            return True

    def take_answer(self, answer: dict[str, Any]) -> None:
        """Show another answer."""
        with self._lock:
            self.answer = answer
            self._encoded = {}
            self.version += 1

    # what the pages ask for

    def page(self) -> bytes:
        """JSON of everything on the page of the sweep but the trials."""
        return self._once("page", lambda: {**self.describe(), "lines_to_type": self._typed()})

    def table(self, since: int, epoch: int) -> bytes:
        """JSON of the trials that changed after a version: cells in order of the columns.

        Args:
            since, epoch: of the table that the page has; another epoch gets all trials.
        """
        first = since if epoch == self.epoch else 0
        return self._once(first, lambda: self.rows(first))

    def update(self, since: int, epoch: int) -> tuple[bytes, bytes, int, int]:
        """JSON of the page and of the trials that changed; version and epoch of both."""
        with self._lock:
            return self.page(), self.table(since, epoch), self.version, self.epoch

    def _once(self, key: object, make: Callable[[], Any]) -> bytes:
        with self._lock:
            if key not in self._encoded:
                self._encoded[key] = compact_json(make()).encode()
            return self._encoded[key]

    def row(self) -> dict[str, Any]:
        """The line of the sweep in the list of sweeps: its result and how it got there."""
        with self._lock:
            best, course = self.snapshot.best, self.snapshot.trajectory()
            return {
                "goals": [_goal(one) for one in self.snapshot.goals],
                "value": None if best is None else self.snapshot.value(best),
                "states": self.snapshot.counts(),
                "spark": text.thinned(course, SPARK_POINTS),
                "share": self.snapshot.share,
                "budget": vars(self.snapshot.budget),
                "workload": self.snapshot.spec.workload if self.snapshot.spec else None,
            }

    def rows(self, since: int = 0) -> dict[str, Any]:
        """The trials that changed after a version: cells in order of the columns."""
        trials = zip(self.snapshot.trials, self._changes, strict=True)
        return {
            "version": self.version,
            "epoch": self.epoch,
            "whole": since == 0,
            "facts": FACTS,
            "goals": [_goal(goal) for goal in self.snapshot.goals],
            "params": list(self._params),
            "metrics": list(self._metrics),
            "rows": [self._cells(trial) for trial, version in trials if version > since],
        }

    def values(self, trial: Trial) -> list[float | None]:
        """The values of a trial for the goals."""
        return [self.snapshot.value(trial, index) for index in range(len(self.snapshot.goals))]

    def _cells(self, trial: Trial) -> list[Any]:
        last = trial.reports[-1] if trial.reports else None
        facts = [
            trial.number, self.snapshot.outcome(trial), trial.failure,
            trial.message[:300], trial.source, trial.attempts, trial.seconds,
            trial.peak_memory_bytes, trial.started, trial.ended,
            last.sequence + 1 if last else 0, last.step if last else None,
        ]  # fmt: skip
        given = trial.params  # null is a parameter that is inactive
        params = [
            "none" if given.get(name, "") is None else given.get(name) for name in self._params
        ]
        metrics = [trial.metrics.get(name) for name in self._metrics]
        return [*facts, *self.values(trial), *params, *metrics]

    def describe(self) -> dict[str, Any]:
        """Everything on the page but the trials."""
        snapshot, spec = self.snapshot, self.snapshot.spec
        assert spec is not None, "a ledger knows the spec"
        best, trials = snapshot.best, snapshot.trials
        valued = [trial for trial in trials if None not in self.values(trial)]
        several = len(snapshot.goals) > 1
        front = ranking.pareto(valued, snapshot.goals, snapshot.constraints) if several else []
        headline = text.why_no_best(snapshot)
        if best is not None:
            found = f"{snapshot.goals[0].metric} {text.number(snapshot.value(best))}"
            headline = f"Best so far: {found} in trial {best.number}"
        running = snapshot.in_state(TrialState.RUNNING)
        return {
            "name": self.name,
            "version": self.version,
            "epoch": self.epoch,
            "state": snapshot.state,
            "created": self._follower.info.created,
            "seconds": snapshot.seconds,
            "host": self._follower.info.host,
            "goals": [_goal(goal) for goal in snapshot.goals],
            "constraints": [str(constraint) for constraint in snapshot.constraints],
            "budget": vars(snapshot.budget),
            "share": snapshot.share,
            "states": snapshot.counts(),
            "headline": headline,
            "answer": self.answer,
            "lines": state_lines(snapshot, {}),  # the counts are beside them
            "best": None if best is None else self._whole(best),
            "first": self._whole(trials[0]) if trials else None,
            "has_default": text.has_default(snapshot),
            "pareto": [trial.number for trial in front],
            "knee": knee(snapshot, front),
            "links": web_pages(snapshot.dashboard),
            "space": list(spec.known_space.to_dict()["parameters"]),
            "workload": spec.workload,
            "suggester": spec.suggester.name,
            "stopper": spec.stopper.name,
            "seed": spec.seed,
            "limits": _limits(self._follower.state.limits),
            "commands": self._commands(),
            "running": [self._curve(trial) for trial in running[:MAX_RUNNING]],
        }

    def _typed(self) -> dict[str, Any]:
        """Lines to type by what they do."""
        spec = self.snapshot.spec
        assert spec is not None, "a ledger knows the spec"
        typed = Typed(self._store)
        first = next(iter(spec.known_space.parameters), "NAME")
        return {
            "resume": typed.line(spec),
            "widen": replace(typed, changes=(f"space.{first}.high=VALUE",)).line(spec),
        }

    def _whole(self, trial: Trial) -> dict[str, Any]:
        return {**trial.summary(), "values": self.values(trial)}

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

    def _commands(self) -> list[dict[str, Any]]:
        """The latest commands of people, the newest one first; `when` in seconds since 1970."""
        people = (one for one in reversed(self._follower.commands) if one.kind not in OF_AGENTS)
        return [
            {"trial": one.trial, "by": one.by, "when": one.sent, "words": in_words(one)}
            for one in islice(people, MAX_COMMANDS)
        ]


def _goal(goal: Goal) -> dict[str, Any]:
    return {"metric": goal.metric, "maximize": goal.maximize, "text": str(goal)}


def web_pages(dashboard: str) -> dict[str, str]:
    """Pages of the Ray dashboard; empty if there is none, or if its address is no web page."""
    if not dashboard.startswith(("http://", "https://")):
        return {}
    pages = {"Ray: jobs": "jobs", "actors (trials)": "actors", "logs": "logs", "cluster": "cluster"}
    return {name: f"{dashboard.rstrip('/')}/#/{page}" for name, page in pages.items()}


def _limits(content: Any) -> dict[str, str]:
    """The limit of each parameter that has one, in words."""
    return {name: str(limit) for name, limit in updated_limits([content]).items()}


def in_words(command: Command) -> str:
    """What a command asks for."""
    content = command.content
    match command.kind:
        case "stop":
            return "stop the sweep"
        case "limits":
            released = {name: "released" for name, value in content.items() if value is None}
            limits = {**_limits(content), **released}
            return "limit " + "; ".join(f"{name}: {limit}" for name, limit in limits.items())
        case "enqueue":
            return f"try {text.configuration(content)}"
        case "budget":
            parts = (f"{key} {'without end' if v is None else v}" for key, v in content.items())
            return f"budget: {', '.join(parts)}"
    return command.kind.replace("_trial", "")
